package admission

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Shared is the policy of the rules about what Flux objects ask for in their spec.
// Nearly every request about such an object is one for several of these rules,
// and what the API server makes ready for a policy, the request and the object
// and the parameters four times over, costs it more than the rule.
const Shared = Prefix + "flux-objects"

// shared returns the rules about the specs of Flux objects as one.
func shared() Rule {
	one := Rule{
		Name: Shared, Title: "Flux objects ask for what their tenant may have",
		resources: append(fluxKinds(writes),
			on(writes, groupExtensions, "artifactgenerators"), on(writes, groupFlagger, "canaries", "metrictemplates", "alertproviders")),
		conditions: []string{specChanged},
		variables:  []admissionregistrationv1.Variable{reconcilers},
		shared:     true,
	}
	// All that is wrong is told at once, so that nobody is sent away five times.
	// Whoever shows it leaves out the first two characters.
	refusals := []string{"(has(object.spec) ? '' : '; ' + " + objectPhrase + " + 'needs a spec')"}
	for _, r := range Rules() {
		if !r.shared {
			continue
		}
		one.variables = append(one.variables, admissionregistrationv1.Variable{Name: r.variable(), Expression: "!has(object.spec) ? '' :\n" + firstOf(r.validations)})
		refusals = append(refusals, fmt.Sprintf("(request.resource.resource in [%[1]s] && variables.%[2]s != '' && !('%[3]s' in variables.exempt) ? '; ' + variables.%[2]s + ' (rule %[3]s)' : '')",
			r.kinds(), r.variable(), r.Name))
	}
	one.refusal = strings.Join(refusals, " +\n")
	return one
}

// allowed is CEL for a match condition: it holds if no shared rule has anything to
// say. Before the API server looks at validations and messages, it converts the
// request, the object, the parameters and the namespace three times more, and of what
// is allowed it makes the message as well. So it finds out first, by expressions
// without messages, whether there is anything to say. What, and who is exempt, is
// the validation's to say: whatever that refuses must not be allowed here.
func allowed(params *admissionregistrationv1.ParamKind) string {
	all := []string{"has(object.spec)"}
	for _, r := range Rules() {
		if !r.shared {
			continue
		}
		all = append(all, fmt.Sprintf("!(request.resource.resource in [%s]) || (%s)", r.kinds(), holding(r.validations)))
	}
	// Match conditions have no variables, and do not see the namespace. So where its
	// labels name the tenant, the account of that name is left to the validation.
	accounts := strings.Replace(reconcilers.Expression, "variables.tenant", "params.spec.tenant", 1)
	if params.Kind != "TenantParameters" {
		accounts = strings.Replace(reconcilers.Expression, "[variables.tenant] + ", "", 1)
	}
	return strings.ReplaceAll(join(all, " && "), "variables."+reconcilers.Name, "("+accounts+")")
}

// holding is CEL that holds if all validations do.
func holding(validations []validation) string {
	var all []string
	for _, v := range validations {
		all = append(all, v.expression)
	}
	return join(all, " && ")
}

// variable is the name of the variable of a shared policy that holds what the
// rule has to say.
func (r Rule) variable() string {
	return strings.ReplaceAll(strings.TrimPrefix(r.Name, Prefix), "-", "_")
}

// Shares reports whether the rule shares its policies with other rules.
func (r Rule) Shares() bool { return r.shared || r.objects }

// Without removes a rule from a policy that it shares with others, and reports whether
// the policy had it. The policy still enforces the others. Use it to show what the rule
// stops.
func (r Rule) Without(policy *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
	i := slices.IndexFunc(policy.Spec.Variables, func(v admissionregistrationv1.Variable) bool { return v.Name == r.variable() })
	if !r.Shares() || i < 0 {
		return false
	}
	policy.Spec.Variables[i].Expression = "''"
	return true
}

// kinds is CEL for the resources that a rule is about, by their names alone:
// those of Flux and Flagger are all different.
func (r Rule) kinds() string {
	var names []string
	for _, on := range r.resources {
		for _, name := range on.Resources {
			names = append(names, quote(name))
		}
	}
	return strings.Join(names, ", ")
}

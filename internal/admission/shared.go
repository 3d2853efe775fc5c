package admission

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Shared is the name of the policy with the rules about the spec of Flux objects. Nearly every request for
// such an object matches several of these rules. The API server converts the request, the object and the
// parameters four times for each policy, which costs more than the evaluation of a rule.
const Shared = Prefix + "flux-objects"

// shared returns one rule that combines the rules about the spec of Flux objects.
func shared() Rule {
	one := Rule{
		Name: Shared, Title: "Flux objects keep to the limits of their tenant",
		resources: append(fluxKinds(writes),
			on(writes, groupExtensions, "artifactgenerators"), on(writes, groupFlagger, "canaries", "metrictemplates", "alertproviders"),
			on(writes, groupOperator, operatorKinds...)),
		conditions: []string{specChanged},
		variables:  []admissionregistrationv1.Variable{reconcilers},
		scope:      fluxObjects,
	}
	// The message contains all refusals, so that the user can correct all errors at once. The policy
	// removes the first two characters.
	refusals := []string{"(has(object.spec) ? '' : '; ' + " + objectPhrase + " + 'needs a spec')"}
	for _, r := range Rules() {
		if r.scope != fluxObjects {
			continue
		}
		variables, refusal := apart(r.variable(), r.validations)
		one.variables = append(append(one.variables, variables...), admissionregistrationv1.Variable{
			Name: r.variable(), Expression: "!has(object.spec) ? '' :\n" + refusal,
		})
		refusals = append(refusals, fmt.Sprintf("(request.resource.resource in [%[1]s] && variables.%[2]s != '' && !('%[3]s' in variables.exempt) ? '; ' + variables.%[2]s + ' (rule %[3]s)' : '')",
			r.kinds(), r.variable(), r.Name))
	}
	one.refusal = strings.Join(refusals, " +\n")
	return one
}

// writesSpec is CEL that is true for requests that the rules about the spec of Flux objects are about.
var writesSpec = fmt.Sprintf("request.operation in ['CREATE', 'UPDATE'] && !has(request.subResource) && request.resource.resource in [%s]", shared().kinds())

// specVariables returns the variables of the shared rules, and the variable specs with their refusals, for
// a policy that also decides other requests.
func specVariables() []admissionregistrationv1.Variable {
	specs := shared()
	return append(specs.variables, admissionregistrationv1.Variable{
		Name: "specs", Expression: "!(" + join([]string{writesSpec, specChanged}, " && ") + ") ? '' :\n" + specs.refusal,
	})
}

// allowed returns CEL for a match condition that is true if no shared rule refuses the request. Before the
// API server evaluates validations and messages, it converts the request, the object, the parameters and
// the namespace three more times, and it also evaluates the message of a request that it allows. So this
// condition decides first, by expressions without messages and exemptions. It must not allow any request
// that the validation refuses.
func allowed(params *admissionregistrationv1.ParamKind) string {
	all := []string{"has(object.spec)"}
	for _, r := range Rules() {
		if r.scope != fluxObjects {
			continue
		}
		all = append(all, fmt.Sprintf("!(request.resource.resource in [%s]) || (%s)", r.kinds(), holding(r.validations)))
	}
	// Match conditions have no variables, and cannot read the namespace. Without TenantParameters, only the
	// namespace's labels name the tenant, so the validation decides about the account with this name.
	accounts := strings.Replace(reconcilers.Expression, "variables.tenant", "params.spec.tenant", 1)
	if params.Kind != "TenantParameters" {
		accounts = strings.Replace(reconcilers.Expression, "[variables.tenant] + ", "", 1)
	}
	return strings.ReplaceAll(join(all, " && "), "variables."+reconcilers.Name, "("+accounts+")")
}

// holding returns CEL that is true if all validations hold.
func holding(validations []validation) string {
	var all []string
	for _, v := range validations {
		all = append(all, v.expression)
	}
	return join(all, " && ")
}

// variable returns the name of the shared policy's variable that holds the rule's refusal.
func (r Rule) variable() string {
	return strings.ReplaceAll(strings.TrimPrefix(r.Name, Prefix), "-", "_")
}

// Shares reports whether the rule shares its policies with other rules.
func (r Rule) Shares() bool { return r.scope == fluxObjects || r.scope == tenantObjects }

// Without removes a rule from a policy that several rules share, and reports whether the policy
// had the rule. The policy still enforces its other rules. Tests use Without to find the requests
// that the rule stops.
func (r Rule) Without(policy *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
	i := slices.IndexFunc(policy.Spec.Variables, func(v admissionregistrationv1.Variable) bool { return v.Name == r.variable() })
	if !r.Shares() || i < 0 {
		return false
	}
	policy.Spec.Variables[i].Expression = "''"
	return true
}

// kinds returns CEL for a list of the names of a rule's resources, without groups: no two resources of Flux
// and Flagger have the same name.
func (r Rule) kinds() string {
	var names []string
	for _, on := range r.resources {
		for _, name := range on.Resources {
			names = append(names, quote(name))
		}
	}
	return strings.Join(names, ", ")
}

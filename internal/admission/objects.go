package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects is the policy of the rules about all kinds of objects in tenants' namespaces.
// One of its rules covers every kind, so each request meets this policy. For each further
// policy the API server would convert the request, the object and the parameters again,
// which takes longer than all of these rules.
//
// Its match condition holds if one of the rules may apply. It contains all conditions of
// the rules except the late ones and the RBAC checks, which the validation makes.
const Objects = Prefix + "objects"

// objects returns the rules about objects that a policy includes as one rule: all of them
// where a namespace has parameters (own), and otherwise those that read the profile.
//
// The variables rbac0, rbac1 and so on check RBAC, and several rules may share one. Only
// the variable refused reads them: a message cannot check RBAC. In the variable refused itself, the
// checks of a few rules would cost more than the API server allows for an expression.
func objects(own bool, includes func(Rule) bool) Rule {
	one := Rule{Name: Objects, Title: "objects in a tenant's namespace keep to the limits of the tenant", scope: tenantObjects, compensates: true}
	var questions, refused, refusals []string
	var included []Rule
	every := false
	for _, r := range Rules() {
		if r.scope != tenantObjects || r.ownParameters && !own || !includes(r) {
			continue
		}
		one.compensates = one.compensates && r.compensates
		one.resources = append(one.resources, r.resources...)
		every = every || r.everyKind && own
		included = append(included, r)
		for _, v := range r.variables {
			if !slices.Contains(one.variables, v) {
				one.variables = append(one.variables, v)
			}
		}
		wrong := fmt.Sprintf("variables.%[1]s != '' && !('%[2]s' in variables.exempt)", r.variable(), r.Name)
		refusals = append(refusals, fmt.Sprintf("(%[1]s ? '; ' + variables.%[2]s + ' (rule %[3]s)' : '')", wrong, r.variable(), r.Name))
		conditions := []string{r.looks(own)}
		for _, condition := range slices.Concat(r.conditions, r.late) {
			if authorizerChecks(condition) == 0 {
				conditions = append(conditions, condition)
				continue
			}
			if !slices.Contains(questions, condition) {
				questions = append(questions, condition)
			}
			wrong += fmt.Sprintf(" && variables.rbac%d", slices.Index(questions, condition))
		}
		refused = append(refused, wrong)
		variables, refusal := apart(r.variable(), r.validations)
		one.variables = append(append(one.variables, variables...), admissionregistrationv1.Variable{
			Name: r.variable(), Expression: "!(" + join(conditions, " && ") + ") ? '' :\n" + refusal,
		})
	}
	if every && !slices.ContainsFunc(one.resources, isEveryObject) {
		one.resources = append(one.resources, everyObject)
	}
	one.resources = merged(one.resources)
	for i, question := range questions {
		one.variables = append(one.variables, admissionregistrationv1.Variable{Name: fmt.Sprintf("rbac%d", i), Expression: question})
	}
	one.variables = append(one.variables, admissionregistrationv1.Variable{Name: "refused", Expression: join(refused, " || ")})
	one.conditions = []string{anyApplies(included, own)}
	one.refusal = strings.Join(refusals, " +\n")
	return one
}

// everyObject covers all requests about objects in namespaces, and writtenObject those that
// write an object. Cluster-scoped objects have no parameters, so the API server would refuse
// all of them.
var (
	everyObject   = every(append(slices.Clone(all), admissionregistrationv1.Connect))
	writtenObject = every(writes)
)

func every(operations []admissionregistrationv1.OperationType) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"},
			Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}}
}

// merged returns the same resources and operations in fewer rules, those of every kind first. For
// each request of the cluster the API server compares one rule after the other, each resource by
// itself, until one matches.
func merged(rules []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	type resource struct{ group, name string }
	var first []admissionregistrationv1.NamedRuleWithOperations
	var order []resource
	operations := map[resource][]admissionregistrationv1.OperationType{}
	for _, r := range rules {
		if isOfEveryKind(r) {
			first = append(first, r)
			continue
		}
		for _, name := range r.Resources {
			at := resource{r.APIGroups[0], name}
			if _, known := operations[at]; !known {
				order = append(order, at)
			}
			operations[at] = append(operations[at], r.Operations...)
		}
	}
	var rest []admissionregistrationv1.NamedRuleWithOperations
	for _, at := range order {
		wanted := slices.Compact(slices.Sorted(slices.Values(operations[at])))
		i := slices.IndexFunc(rest, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return r.APIGroups[0] == at.group && slices.Equal(r.Operations, wanted)
		})
		if i < 0 {
			rest = append(rest, on(wanted, at.group))
			i = len(rest) - 1
		}
		rest[i].Resources = append(rest[i].Resources, at.name)
	}
	return append(first, rest...)
}

func isOfEveryKind(r admissionregistrationv1.NamedRuleWithOperations) bool {
	return slices.Contains(r.Resources, "*/*")
}

func isEveryObject(r admissionregistrationv1.NamedRuleWithOperations) bool {
	return isOfEveryKind(r) && slices.Contains(r.Operations, admissionregistrationv1.Connect)
}

// applies returns CEL for a match condition that holds if the rule may apply.
func (r Rule) applies(own bool) string {
	all := []string{r.looks(own)}
	// Most requests do nothing that the rule refuses. So this comes first. Without
	// parameters only the namespace names the tenant, and a match condition cannot read
	// the namespace.
	if r.early && own {
		tenant := admissionregistrationv1.Variable{Name: "tenant", Expression: "params.spec.tenant"}
		all = append(all, "!("+inline(cmp.Or(r.together, holding(r.validations)), append([]admissionregistrationv1.Variable{tenant}, r.variables...))+")")
	}
	for _, condition := range r.conditions {
		if authorizerChecks(condition) == 0 {
			all = append(all, condition)
		}
	}
	return join(all, " && ")
}

// looks returns CEL that holds if the rule covers a request. Namespaces have rules of
// their own. A CONNECT request has no object, and the name of a Pod at most.
func (r Rule) looks(own bool) string {
	if r.everyKind && own {
		return "(request.operation != 'CONNECT' || request.resource.resource == 'pods') && request.resource.resource != 'namespaces'"
	}
	return looksAt(r.resources)
}

// looksAt returns CEL that holds if a request is for one of the resources, with one of
// the operations. It compares the names of all resources first, as most requests are for
// others.
func looksAt(rules []admissionregistrationv1.NamedRuleWithOperations) string {
	var names, each []string
	for _, r := range rules {
		subresources := map[string][]string{}
		for _, resource := range r.Resources {
			if resource == "*/*" {
				return "true"
			}
			name, subresource, _ := strings.Cut(resource, "/")
			subresources[subresource] = append(subresources[subresource], quote(name))
			if !slices.Contains(names, quote(name)) {
				names = append(names, quote(name))
			}
		}
		var operations []string
		for _, operation := range r.Operations {
			operations = append(operations, quote(string(operation)))
		}
		for _, subresource := range slices.Sorted(maps.Keys(subresources)) {
			is := "!has(request.subResource)"
			if subresource != "" {
				is = "has(request.subResource) && request.subResource == " + quote(subresource)
			}
			each = append(each, fmt.Sprintf("request.resource.resource in [%s] && request.resource.group == %s && request.operation in [%s] && %s",
				strings.Join(subresources[subresource], ", "), quote(r.APIGroups[0]), strings.Join(operations, ", "), is))
		}
	}
	return fmt.Sprintf("request.resource.resource in [%s] && (%s)", strings.Join(names, ", "), join(each, " || "))
}

// anyApplies returns CEL for a match condition that holds if one of the rules may apply. To
// read the resource of a request takes longer than most other parts of a condition. So one
// comparison of the resource comes before all rules about Pods, and another one before the
// rules about other kinds.
func anyApplies(rules []Rule, own bool) string {
	var conditions []string
	var aboutPods, aboutOthers []Rule
	for _, r := range rules {
		switch {
		case r.everyKind && own || slices.ContainsFunc(r.resources, isOfEveryKind):
			conditions = append(conditions, r.applies(own))
		case slices.ContainsFunc(r.resources, func(on admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(on.Resources, "pods")
		}):
			aboutPods = append(aboutPods, r)
		default:
			aboutOthers = append(aboutOthers, r)
		}
	}
	for _, group := range [][]Rule{aboutPods, aboutOthers} {
		var apply []string
		for _, r := range group {
			apply = append(apply, r.applies(own))
		}
		if len(group) > 0 {
			conditions = append(conditions, "("+concerns(group)+") && ("+join(apply, " || ")+")")
		}
	}
	return join(conditions, " || ")
}

// concerns returns CEL that holds for all requests that one of the rules covers, and for few
// others.
func concerns(rules []Rule) string {
	var names []string
	subresources := ""
	for _, r := range rules {
		for _, on := range r.resources {
			for _, resource := range on.Resources {
				if strings.Contains(resource, "/") {
					subresources = " || has(request.subResource)"
				} else if !slices.Contains(names, quote(resource)) {
					names = append(names, quote(resource))
				}
			}
		}
	}
	return "request.resource.resource in [" + strings.Join(names, ", ") + "]" + subresources
}

// objectPolicies returns the two policies with the rules about objects that they include, and
// their bindings.
//
// If the parameters of a namespace are missing, the API server denies requests for the
// resources of the rules that read the profile. It allows all others: Kubernetes itself
// writes objects of every kind.
func objectPolicies(name string, includes func(Rule) bool) ([]admissionregistrationv1.ValidatingAdmissionPolicy, []admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	profile, parameters := objects(false, includes), objects(true, includes)
	own := name + fromParameters
	policies := []admissionregistrationv1.ValidatingAdmissionPolicy{
		profile.policy(name, paramKind("TenancyProfile"), withoutParameters()),
		parameters.policy(own, paramKind("TenantParameters"), where(metav1.LabelSelectorOpExists, v1alpha1.LabelParameters)),
	}
	var bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for i := range tenantLabels {
		bindings = append(bindings, profile.binding(name, name+"-"+bindingNames[i], paramRef(v1alpha1.ProfileName), ofTenants(i)))
	}
	held := profile.binding(own, own, paramRef(v1alpha1.ParametersName), nil)
	held.Spec.MatchResources = &admissionregistrationv1.MatchResources{ResourceRules: profile.resources}
	others := profile.binding(own, own+"-others", paramRef(v1alpha1.ParametersName), nil)
	others.Spec.ParamRef.ParameterNotFoundAction = new(admissionregistrationv1.AllowAction)
	others.Spec.MatchResources = &admissionregistrationv1.MatchResources{ExcludeResourceRules: profile.resources}
	return policies, append(bindings, held, others)
}

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

// Objects is the name of the policy with the rules about all kinds of objects in tenants' namespaces. One
// of its rules covers every kind, so the policy matches each request. For each further policy, the API
// server would convert the request, the object and the parameters again, which takes longer than the
// evaluation of all these rules.
//
// Its match condition is true if one of the rules may apply. It contains all conditions of the rules except
// the late conditions and the RBAC checks, which the validation evaluates.
//
// In namespaces with parameters, several policies share the rules: see [part].
const Objects = Prefix + "objects"

// objects returns one rule that combines the rules about a part of the objects that a policy includes.
//
// The variables rbac0, rbac1 and so on check RBAC, and several rules may share one. Only the variable
// refused reads them: a message cannot check RBAC. If refused contained the checks of several rules itself,
// it would exceed the cost that the API server allows for an expression.
func objects(of part, includes func(Rule) bool) Rule {
	one := Rule{Name: Objects, Title: "objects in a tenant's namespace keep to the limits of the tenant", scope: tenantObjects, compensates: true,
		variables: []admissionregistrationv1.Variable{{Name: "action", Expression: action}}}
	var questions, refused, refusals, ofRules []string
	var included []Rule
	every := false
	// Several rules have variables in common.
	add := func(v admissionregistrationv1.Variable) {
		if !slices.Contains(one.variables, v) {
			one.variables = append(one.variables, v)
		}
	}
	for _, r := range Rules() {
		if r.scope != tenantObjects || !includes(r) {
			continue
		}
		r, any := r.within(of)
		if !any {
			continue
		}
		ofRules = append(ofRules, r.variable())
		one.compensates = one.compensates && r.compensates
		one.resources = append(one.resources, r.resources...)
		every = every || r.everyKind && of.own
		included = append(included, r)
		for _, v := range r.variables {
			add(v)
		}
		wrong := fmt.Sprintf("variables.%[1]s != '' && !('%[2]s' in variables.exempt)", r.variable(), r.Name)
		refusals = append(refusals, fmt.Sprintf("(%[1]s ? '; ' + variables.%[2]s + ' (rule %[3]s)' : '')", wrong, r.variable(), r.Name))
		conditions := []string{r.looks(of, "variables.action")}
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
		variables, refusal := apart(r.variable(), of.validations(r))
		one.variables = append(append(one.variables, variables...), admissionregistrationv1.Variable{
			Name: r.variable(), Expression: "!(" + join(conditions, " && ") + ") ? '' :\n" + refusal,
		})
	}
	if every && !slices.ContainsFunc(one.resources, isEveryObject) {
		one.resources = append(one.resources, everyObject)
	}
	one.resources = of.resources(merged(one.resources))
	for i, question := range questions {
		one.variables = append(one.variables, admissionregistrationv1.Variable{Name: fmt.Sprintf("rbac%d", i), Expression: question})
	}
	specs := of == partOfFlux && includes(shared())
	if specs {
		for _, v := range specVariables() {
			add(v)
		}
		refused, refusals = append(refused, "variables.specs != ''"), append(refusals, "variables.specs")
	}
	one.variables = append(one.variables, admissionregistrationv1.Variable{Name: "refused", Expression: join(refused, " || ")})
	one.conditions = []string{anyApplies(included, of, specs)}
	one.refusal = strings.Join(refusals, " +\n")
	if of.own {
		one.variables = of.reduce(one.variables, ofRules)
	}
	return one
}

// everyObject covers all requests about objects in namespaces, and writtenObject those that write an
// object. They exclude cluster-scoped objects, which have no parameters: the API server would refuse all of
// them.
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

// merged returns rules of the API server that match the same requests with fewer entries; entries for every
// kind come first. For each request of the cluster, the API server compares each resource of each entry
// until one matches.
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

// suspects returns CEL that is true for requests that the rule may refuse, whoever sends them.
func (r Rule) suspects(of part) string {
	all := []string{r.looks(of, "action")}
	// Most requests do nothing that the rule refuses, so this expression comes first. Without parameters
	// only the namespace names the tenant, and a match condition cannot read the namespace.
	if r.early && of.own {
		tenant := admissionregistrationv1.Variable{Name: "tenant", Expression: "params.spec.tenant"}
		all = append(all, "!("+inline(cmp.Or(r.together, holding(r.validations)), append([]admissionregistrationv1.Variable{tenant}, r.variables...))+")")
	}
	return join(all, " && ")
}

// checked returns the conditions of the rule that need no RBAC check, so that a match condition can contain
// them. Most are about the user who sends the request.
func (r Rule) checked() []string {
	return slices.DeleteFunc(slices.Clone(r.conditions), func(condition string) bool { return authorizerChecks(condition) > 0 })
}

// suspicion is a part of a match condition: of is CEL that is true for requests that a rule may refuse, and
// the conditions are true if the rule applies to them.
type suspicion struct {
	of         string
	conditions []string
}

// either returns CEL that is true if one of the suspicions and its conditions are true. It writes a
// condition that several suspicions share only once: the time to compile an expression grows faster than
// its length.
func either(all []suspicion) string {
	shared := commonest(all)
	if shared == "" {
		var each []string
		for _, s := range all {
			each = append(each, join(append([]string{s.of}, s.conditions...), " && "))
		}
		return join(each, " || ")
	}
	var having, others []suspicion
	for _, s := range all {
		i := slices.Index(s.conditions, shared)
		if i < 0 {
			others = append(others, s)
			continue
		}
		having = append(having, suspicion{s.of, slices.Delete(slices.Clone(s.conditions), i, i+1)})
	}
	each := []string{join([]string{either(having), shared}, " && ")}
	if len(others) > 0 {
		each = append(each, either(others))
	}
	return join(each, " || ")
}

// commonest returns the condition that most of the suspicions share, or "" if no two share a condition.
func commonest(all []suspicion) string {
	count, most := map[string]int{}, ""
	for _, s := range all {
		for _, condition := range s.conditions {
			count[condition]++
		}
	}
	for _, condition := range slices.Sorted(maps.Keys(count)) {
		if count[condition] > max(1, count[most]) {
			most = condition
		}
	}
	return most
}

// action is CEL for the operation and the resource of a request, as one text: UPDATE apps/deployments, or
// UPDATE /pods/ephemeralcontainers. Reading a field of the request takes longer than searching a list of
// constants, and compiling a comparison of each field takes longer than both.
const action = "request.operation + ' ' + request.resource.group + '/' + request.resource.resource + (has(request.subResource) ? '/' + request.subResource : '')"

// looks returns CEL that is true if the rule covers a request; variable holds the action of the request. A
// rule for every kind excludes Namespaces, whose content has rules of its own, except for their deletion.
// It also excludes CONNECT requests, which have no object, except those to Pods.
func (r Rule) looks(of part, variable string) string {
	if r.everyKind && of.own {
		return "(request.operation != 'CONNECT' || request.resource.resource == 'pods') && (request.resource.resource != 'namespaces' || request.operation == 'DELETE')"
	}
	if slices.ContainsFunc(r.resources, isOfEveryKind) {
		return "true"
	}
	return isOneOf(variable, actions(r.resources))
}

// actions returns the distinct actions that rules of the API server cover, in the form of [action].
func actions(rules []admissionregistrationv1.NamedRuleWithOperations) []string {
	var all []string
	for _, r := range rules {
		for _, operation := range r.Operations {
			for _, resource := range r.Resources {
				all = append(all, fmt.Sprintf("%s %s/%s", operation, r.APIGroups[0], resource))
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// names returns the distinct names of the resources that rules of the API server cover, without
// subresources.
func names(rules []admissionregistrationv1.NamedRuleWithOperations) []string {
	var all []string
	for _, r := range rules {
		for _, resource := range r.Resources {
			name, _, _ := strings.Cut(resource, "/")
			all = append(all, name)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// isOneOf returns CEL that is true if an expression equals one of the texts.
func isOneOf(expression string, texts []string) string {
	var quoted []string
	for _, text := range texts {
		quoted = append(quoted, quote(text))
	}
	return expression + " in [" + strings.Join(quoted, ", ") + "]"
}

// anyApplies returns CEL for a match condition that is true if one of the rules may apply. It searches for
// the action once before all rules about Pods, and once before the rules about other kinds.
func anyApplies(rules []Rule, of part, specs bool) string {
	var aboutAll, aboutPods, aboutOthers []suspicion
	var pods, others []admissionregistrationv1.NamedRuleWithOperations
	for _, r := range rules {
		s := suspicion{of: r.suspects(of)}
		for _, condition := range r.checked() {
			s.conditions = append(s.conditions, inline(condition, r.variables))
		}
		switch {
		case r.everyKind && of.own || slices.ContainsFunc(r.resources, isOfEveryKind):
			aboutAll = append(aboutAll, s)
		case slices.Contains(names(r.resources), "pods"):
			pods, aboutPods = append(pods, r.resources...), append(aboutPods, s)
		default:
			others, aboutOthers = append(others, r.resources...), append(aboutOthers, s)
		}
	}
	var conditions []string
	if len(aboutAll) > 0 {
		conditions = append(conditions, either(aboutAll))
	}
	for _, group := range []struct {
		resources []admissionregistrationv1.NamedRuleWithOperations
		rules     []suspicion
	}{{pods, aboutPods}, {others, aboutOthers}} {
		if len(group.rules) > 0 {
			conditions = append(conditions, fmt.Sprintf("%s && [%s].exists(action,\n%s)", isOneOf("request.resource.resource", names(group.resources)), action, either(group.rules)))
		}
	}
	applies := of.decide(join(conditions, " || "))
	if specs {
		applies = join([]string{applies, join([]string{writesSpec, specChanged, "!(" + allowed(paramKind("TenantParameters")) + ")"}, " && ")}, " || ")
	}
	applies = readOnce.Replace(applies)
	if of != partOfPods {
		applies = "[request.resource.resource].exists(resource,\n" + applies + ")"
	}
	return "[request.operation].exists(operation,\n" + applies + ")"
}

// readOnce replaces fields of the request by the variables of the match condition.
var readOnce = strings.NewReplacer("request.resource.resource", "resource", "request.operation", "operation")

// objectPolicies returns the policies with the included rules about objects, and their bindings.
//
// If the parameters of a namespace are missing, the API server denies requests for the resources of the
// rules that read the profile. It allows all others: Kubernetes itself writes objects of every kind.
func objectPolicies(name string, includes func(Rule) bool) ([]admissionregistrationv1.ValidatingAdmissionPolicy, []admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	profile := objects(partOfProfile, includes)
	policies := []admissionregistrationv1.ValidatingAdmissionPolicy{profile.policy(name, paramKind("TenancyProfile"), withoutParameters())}
	var bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for i := range tenantLabels {
		bindings = append(bindings, profile.binding(name, name+"-"+bindingNames[i], paramRef(v1alpha1.ProfileName), ofTenants(i)))
	}
	for _, of := range []part{partOfOthers, partOfPods, partOfFlux} {
		own := of.policy(name)
		policy := objects(of, includes).policy(own, paramKind("TenantParameters"), where(metav1.LabelSelectorOpExists, v1alpha1.LabelParameters))
		if of == partOfOthers {
			policy.Spec.MatchConstraints.ExcludeResourceRules = slices.Concat(partOfPods.resources(nil), partOfFlux.resources(nil))
		}
		policies = append(policies, policy)
		resources := of.only(profile.resources)
		if of == partOfFlux {
			resources = merged(slices.Concat(resources, shared().resources))
		}
		held := profile.binding(own, own, paramRef(v1alpha1.ParametersName), nil)
		held.Spec.MatchResources = &admissionregistrationv1.MatchResources{ResourceRules: resources}
		others := profile.binding(own, own+"-others", paramRef(v1alpha1.ParametersName), nil)
		others.Spec.ParamRef.ParameterNotFoundAction = new(admissionregistrationv1.AllowAction)
		others.Spec.MatchResources = &admissionregistrationv1.MatchResources{ExcludeResourceRules: resources}
		bindings = append(bindings, held, others)
	}
	return policies, bindings
}

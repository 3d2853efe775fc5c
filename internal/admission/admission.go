// Package admission holds the rules for tenants that the API server itself enforces, as
// ValidatingAdmissionPolicies. make generate writes the policies into config/admission. Most rules become
// two policies with the same expressions: the first reads the TenancyProfile, for namespaces that have no
// TenantParameters yet, and the second reads the TenantParameters. The rules about the spec of Flux objects
// share policies with the rules about other objects, see [Shared] and [Objects].
//
// A rule checks the change of an object, not the object: users may update and delete an object that is
// older than the rule, if they do not make it worse.
//
// Each policy that a request matches costs far more than one more expression in a policy that the request
// matches anyway, and each policy with a namespace selector adds a small cost to every request of the
// cluster. So write a new rule
//
//   - with shared if it is about the spec of Flux objects, and with objects if it is about
//     anything else in the namespaces of tenants: it becomes an expression of a policy
//     that such a request matches anyway;
//   - with conditions that most requests fail, the cheap ones first and the RBAC checks
//     last, or as early if its validations alone can decide;
//   - with a policy of its own only if it is about a few kinds that tenants seldom
//     write, and then with the selector of namespaces in the binding.
//
// TestPoliciesOfRequest counts the policies that frequent requests match. See docs/design/rules.md, What a
// rule costs.
package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Prefix begins the names of all policies of Tenure, so that users recognize them in messages of the API
// server.
const Prefix = "tenure-"

// fromParameters is the suffix of the policy that reads TenantParameters, and of the policy of
// [Rule.inTenants].
const fromParameters = "-own"

// Rule is a restriction for tenants, or for the manager.
type Rule struct {
	// Name is the name of the rule in exemptions, with [Prefix]. It is also the name of the rule's
	// policies, unless the rule shares a policy.
	Name string
	// Title states the rule in one sentence. It is the message of a refusal if the API server cannot show
	// the whole message.
	Title string
	// Rows are the IDs of the attacks in the catalogue that the rule stops.
	Rows []string
	// scope says in which namespaces the rule applies.
	scope scope
	// resources are the resources and operations that the rule matches.
	resources []admissionregistrationv1.NamedRuleWithOperations
	// conditions are CEL expressions; the rule is evaluated if all are true. The API
	// server stops at the first false one, so cheap conditions come first.
	conditions []string
	// late are further conditions of a rule of scope tenantObjects: long conditions that exclude few
	// requests. They are not part of the match condition: the API server compiles a match condition at each
	// change of the policy, and the time for this grows with the square of the condition's length.
	late []string
	// variables are CEL. A variable may read the variables before it.
	variables []admissionregistrationv1.Variable
	// validations are evaluated in order; a refusal has the message of the first false
	// validation.
	validations []validation
	// refusal replaces the validations: CEL for the message of the refusal, or for the empty string.
	refusal string
	// ungoverned are the resources that a rule of scope allNamespaces leaves to other rules in a
	// namespace with parameters: tenants create many of them there.
	ungoverned []admissionregistrationv1.NamedRuleWithOperations
	// frequent are the resources of a rule of scope allNamespaces that a policy of its own decides in
	// its match condition, in the namespaces of Tenants: see [Rule.inTenants].
	frequent []admissionregistrationv1.NamedRuleWithOperations
	// marked is the label of the objects that a rule of scope allNamespaces is about. The binding selects
	// requests whose old or new object has the label, so that the API server does not evaluate the rule for
	// other objects.
	marked string
	// asksRBAC is set for a rule of scope allNamespaces whose validations query RBAC. A message cannot
	// query RBAC, so each validation has a message of its own.
	asksRBAC bool
	// early rules decide in the match condition whether the request is allowed: see [allowed]. Their
	// validations use no variable but the name.
	early bool
	// together is CEL that is true if all validations of an early rule hold. It is set for rules in which
	// one expression is cheaper than one for each validation.
	together string
	// compensates marks a rule of scope tenantObjects that compensates for rights which RBAC cannot narrow:
	// a tenant's role includes kinds of which the platform and Flux also have objects in the tenant's
	// namespaces. See [Rule.always].
	compensates bool
	// sharded rules are evaluated only for namespaces and objects in a shard: see [Rule.narrowed].
	sharded bool
	// ownParameters rules read TenantParameters only, and deny nothing in a namespace without
	// them.
	ownParameters bool
	// everyKind extends a rule of scope tenantObjects to all kinds in namespaces with parameters. Elsewhere
	// the rule covers only its resources: without a profile the API server denies every request that a rule
	// covers, and it must not deny the requests for all objects.
	everyKind bool
}

// scope says where a rule applies, what its policies read, and which rules share a policy.
type scope int

const (
	// tenantNamespaces rules apply in the namespaces of tenants. Each has a policy that reads
	// TenantParameters, and one that reads the profile in namespaces without them.
	tenantNamespaces scope = iota
	// fluxObjects rules are about the spec of Flux objects in these namespaces, and share the policy
	// [Shared].
	fluxObjects
	// tenantObjects rules are about all other objects in these namespaces, and share the policy [Objects].
	tenantObjects
	// allNamespaces rules apply in every namespace and read no parameters.
	allNamespaces
	// allNamespacesProfiled rules apply in every namespace and read the profile. Without a profile they
	// deny nothing.
	allNamespacesProfiled
	// namespaceObjects rules are about tenants' Namespace objects, selected by Tenure's label. They read
	// the profile, because a namespace has no parameters before it exists. Without a profile they deny
	// nothing, so that admins can create namespaces.
	namespaceObjects
	// ownerNamespaces rules apply in namespaces that owners created. They read the profile, and deny
	// nothing without one.
	ownerNamespaces
	// platformNamespaces rules apply in namespaces of the platform with the label [v1alpha1.LabelImages].
	// They read the profile, and deny nothing without one: the platform must be able to repair itself.
	platformNamespaces
	// unparameterized rules apply in tenants' namespaces without parameters, and read neither the profile
	// nor parameters. So they can be about every kind: see docs/design/rules.md.
	unparameterized
)

// onePolicy reports whether each rule of the scope has a single policy, which does not read
// TenantParameters.
func (s scope) onePolicy() bool { return s > tenantObjects }

// Policy returns the name of the policy that enforces the rule, without the suffix of the
// policy that reads TenantParameters.
func (r Rule) Policy() string {
	switch r.scope {
	case fluxObjects:
		return Shared
	case tenantObjects:
		return Objects
	default:
		return r.Name
	}
}

// Policies returns the names of all policies that enforce the rule.
func (r Rule) Policies() []string {
	parameters := r.Policy() + fromParameters
	switch {
	case len(r.frequent) > 0:
		return []string{r.Policy(), parameters}
	case r.scope.onePolicy():
		return []string{r.Policy()}
	}
	all := []string{r.Policy()}
	switch {
	case r.ownParameters:
		all = nil
	case r.scope == fluxObjects:
		return append(all, partOfFlux.policy(Objects))
	case r.scope != tenantObjects:
		return append(all, parameters)
	}
	for _, of := range []part{partOfOthers, partOfPods, partOfFlux} {
		if _, has := r.within(of); has {
			all = append(all, of.policy(r.Policy()))
		}
	}
	return all
}

// validation is a CEL expression that must be true, and CEL for the message if it is false. The API server
// shows the message after "tenant NAME: ".
type validation struct{ expression, message string }

// Rules returns all rules, sorted by name.
func Rules() []Rule {
	rules := []Rule{
		accounts(),
		allocations(),
		adoption(),
		bindings(),
		bounds(),
		charts(),
		claims(),
		contents(),
		copies(),
		cordon(),
		credentialRights(),
		credentialSecrets(),
		decryptionSecrets(),
		endpoints(),
		events(),
		externalArtifacts(),
		flagger(),
		hosts(),
		ingressAnnotations(),
		images(),
		kubeConfigs(),
		managed(),
		managerParameters(),
		managerRequests(),
		namespaceNames(),
		newNamespaces(),
		namespaces(),
		nodes(),
		notifications(),
		ownerAccounts(),
		ownerPods(),
		notificationSecrets(),
		parameters(),
		podAnnotations(),
		pods(),
		protected(),
		quotas(),
		references(),
		replicators(),
		resourceSets(),
		services(),
		shards(),
		signatureKeys(),
		signatures(),
		sources(),
		status(),
		takeover(),
		tokens(),
		workloads(),
	}
	slices.SortFunc(rules, func(a, b Rule) int { return strings.Compare(a.Name, b.Name) })
	return rules
}

// Policies returns the policies of all rules, and the bindings with which they deny.
func Policies() ([]admissionregistrationv1.ValidatingAdmissionPolicy, []admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	policies, bindings := objectPolicies(Objects, func(Rule) bool { return true })
	for _, r := range enforced() {
		switch r.scope {
		case allNamespaces:
			policies = append(policies, r.policy(r.Name, nil, nil))
			bindings = append(bindings, r.everywhere()...)
			if len(r.frequent) > 0 {
				frequent := r.inTenants()
				policies = append(policies, frequent.policy(frequent.Name, nil, nil))
				bindings = append(bindings, frequent.named())
			}
		case unparameterized:
			policies = append(policies, r.policy(r.Name, nil, where(metav1.LabelSelectorOpDoesNotExist, v1alpha1.LabelParameters)))
			// The API server reads these selectors for each request in a namespace of no tenant. So they do not
			// exclude the other labels: a namespace with two of them meets the rule twice, for some seconds.
			for i, label := range tenantLabels {
				bindings = append(bindings, r.binding(r.Name, r.Name+"-"+bindingNames[i], nil, where(metav1.LabelSelectorOpExists, label)))
			}
		case fluxObjects:
			policies = append(policies, r.policy(r.Name, paramKind("TenancyProfile"), withoutParameters()))
			for i := range tenantLabels {
				bindings = append(bindings, r.binding(r.Name, r.Name+"-"+bindingNames[i], paramRef(v1alpha1.ProfileName), ofTenants(i)))
			}
		case tenantNamespaces:
			policies = append(policies, r.policy(r.Name, paramKind("TenancyProfile"), withoutParameters()))
			for i := range tenantLabels {
				bindings = append(bindings, r.narrowed(r.binding(r.Name, r.Name+"-"+bindingNames[i], paramRef(v1alpha1.ProfileName), ofTenants(i)))...)
			}
			own := r.Name + fromParameters
			policies = append(policies, r.policy(own, paramKind("TenantParameters"), where(metav1.LabelSelectorOpExists, v1alpha1.LabelParameters)))
			bindings = append(bindings, r.narrowed(r.binding(own, own, paramRef(v1alpha1.ParametersName), nil))...)
		default:
			namespaces := where(metav1.LabelSelectorOpExists, v1alpha1.LabelTenant)
			switch r.scope {
			case ownerNamespaces:
				namespaces = madeByOwners()
			case platformNamespaces:
				namespaces = where(metav1.LabelSelectorOpExists, v1alpha1.LabelImages)
			case allNamespacesProfiled:
				namespaces = nil
			}
			params := paramRef(v1alpha1.ProfileName)
			params.ParameterNotFoundAction = new(admissionregistrationv1.AllowAction)
			policies = append(policies, r.policy(r.Name, paramKind("TenancyProfile"), r.firstNamespaces(namespaces)))
			bindings = append(bindings, r.binding(r.Name, r.Name, params, namespaces))
		}
	}
	return policies, bindings
}

// firstNamespaces returns the selector of namespaces in the policy of a rule, or nil if only the binding
// selects namespaces. After the installation of the parameters' kind, the API server needs up to 30 s to
// find the kind. Until then it refuses every request that a policy matches, whatever the binding selects.
// Without a selector, a rule about every kind would block all namespaces, leader elections included, and a
// rule about Pods would block the Pods of Kubernetes and Flux.
func (r Rule) firstNamespaces(namespaces *metav1.LabelSelector) *metav1.LabelSelector {
	if r.scope == ownerNamespaces || r.scope == platformNamespaces {
		return namespaces
	}
	return nil
}

// enforced returns the rules that have policies of their own, and one rule that combines the rules about
// Flux objects.
func enforced() []Rule {
	rules := []Rule{shared()}
	for _, r := range Rules() {
		if r.scope != fluxObjects && r.scope != tenantObjects {
			rules = append(rules, r)
		}
	}
	return rules
}

func paramKind(kind string) *admissionregistrationv1.ParamKind {
	return &admissionregistrationv1.ParamKind{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind}
}

// tenantLabels are the labels that assign a namespace to a tenant. A binding cannot select one label or
// another, so each label has a binding, which excludes the namespaces with the labels before it.
// bindingNames are the suffixes of the bindings' names, in the same order.
var (
	tenantLabels = []string{v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant}
	bindingNames = []string{"tenure", "flux", "capsule"}
)

// where returns a selector of the namespaces that have each of the labels, or have none of them.
func where(operator metav1.LabelSelectorOperator, labels ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for _, label := range labels {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: label, Operator: operator})
	}
	return s
}

// paramRef returns a reference to the parameters with a name. If the parameters are missing, the API server
// denies the request, so that deleting the profile allows nothing.
func paramRef(name string) *admissionregistrationv1.ParamRef {
	deny := admissionregistrationv1.DenyAction
	return &admissionregistrationv1.ParamRef{Name: name, ParameterNotFoundAction: &deny}
}

// withoutParameters returns a selector of the namespaces in which the rules read the TenancyProfile. It
// excludes the namespaces of Kubernetes and Flux: until the API server has found the kind TenancyProfile,
// it would refuse their Pods, Secrets, service accounts and syncs, whatever the bindings select.
//
// All rules still apply to tenants. The bindings select namespaces of tenants, and the excluded namespaces
// belong to the platform: the manager and the rule tenure-namespaces refuse them to tenants. Only a
// platform admin could label one of them as a tenant's, and a user who may create Pods or tokens there has
// the rights of Kubernetes' controllers or of Flux anyway.
func withoutParameters() *metav1.LabelSelector {
	s := where(metav1.LabelSelectorOpDoesNotExist, v1alpha1.LabelParameters)
	s.MatchExpressions = append(s.MatchExpressions, labelled(metav1.LabelSelectorOpNotIn, corev1.LabelMetadataName, metav1.NamespaceSystem, managerNamespace).MatchExpressions...)
	return s
}

// labelled returns a selector of the namespaces in which the label has one of the values, or none of them.
func labelled(operator metav1.LabelSelectorOperator, label string, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: operator, Values: values}}}
}

func (r Rule) binding(policy, name string, params *admissionregistrationv1.ParamRef, namespaces *metav1.LabelSelector) admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	b := admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: r.labels()},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy,
			ParamRef:          params,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	if namespaces != nil {
		b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: namespaces}
	}
	return b
}

// narrowed returns the bindings of a rule about shards: one for the namespaces that are in a shard, and one
// for objects with a shard label in other namespaces. The API server prepares the evaluation of a policy
// only after a binding has matched, so the rule costs nothing in a cluster without shards.
func (r Rule) narrowed(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) []admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	if !r.sharded {
		return []admissionregistrationv1.ValidatingAdmissionPolicyBinding{b}
	}
	var namespaces []metav1.LabelSelectorRequirement
	if b.Spec.MatchResources != nil {
		namespaces = b.Spec.MatchResources.NamespaceSelector.MatchExpressions
	}
	selecting := func(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
		selector := where(operator, v1alpha1.LabelShard)
		selector.MatchExpressions = append(selector.MatchExpressions, namespaces...)
		return selector
	}
	objects := *b.DeepCopy()
	objects.Name += "-objects"
	objects.Spec.MatchResources = &admissionregistrationv1.MatchResources{
		NamespaceSelector: selecting(metav1.LabelSelectorOpDoesNotExist),
		ObjectSelector:    where(metav1.LabelSelectorOpExists, v1alpha1.LabelShard),
	}
	b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: selecting(metav1.LabelSelectorOpExists)}
	return []admissionregistrationv1.ValidatingAdmissionPolicyBinding{b, objects}
}

func (r Rule) policy(name string, params *admissionregistrationv1.ParamKind, namespaces *metav1.LabelSelector) admissionregistrationv1.ValidatingAdmissionPolicy {
	fail, forbidden := admissionregistrationv1.Fail, metav1.StatusReasonForbidden
	p := admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: r.labels(), Annotations: map[string]string{"tenure.dev/title": r.Title}},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:        params,
			FailurePolicy:    &fail,
			MatchConstraints: &admissionregistrationv1.MatchResources{NamespaceSelector: namespaces, ResourceRules: r.resources},
			Variables:        []admissionregistrationv1.Variable{{Name: "name", Expression: objectName}},
		},
	}
	conditions := r.conditions
	if r.scope == unparameterized {
		conditions = r.checked()
	}
	if r.scope == fluxObjects {
		conditions = append(slices.Clone(conditions), "!("+allowed(params)+")")
	}
	if r.early {
		conditions = append(slices.Clone(conditions), "!("+strings.ReplaceAll(holding(r.validations), "variables.name", objectName)+")")
	}
	for i, together := range affordable(conditions) {
		p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{
			Name: "applies" + strings.Repeat("-further", i), Expression: join(together, " && "),
		})
	}
	// The API server also evaluates the message of a request that it allows.
	holds, message := "variables.refusal == ''", "variables.refusal"
	if r.scope == tenantObjects {
		holds = "!variables.refused"
	}
	if params != nil {
		p.Spec.Variables = append(p.Spec.Variables, admissionregistrationv1.Variable{Name: "exempt", Expression: exempt})
		holds += " || " + breaksGlass
		refused := `variables.refusal.substring(2).replace('\n', ' ')`
		if r.scope != fluxObjects && r.scope != tenantObjects {
			holds += fmt.Sprintf(" || '%s' in variables.exempt", r.Name)
			refused = `variables.refusal.replace('\n', ' ')`
		}
		if r.scope != platformNamespaces && r.scope != allNamespacesProfiled {
			p.Spec.Variables = append(p.Spec.Variables, admissionregistrationv1.Variable{Name: "tenant", Expression: r.tenant(params)})
			refused = "'tenant ' + variables.tenant + ': ' + " + refused
		}
		message = "variables.refusal == '' ? '' : " + refused
	}
	if r.asksRBAC {
		p.Spec.Variables = append(p.Spec.Variables, r.variables...)
		for _, v := range together(r.validations, r.variables) {
			message := v.message
			if params != nil {
				message = "'tenant ' + variables.tenant + ': ' + " + message
			}
			p.Spec.Validations = append(p.Spec.Validations, admissionregistrationv1.Validation{
				Expression: v.expression, MessageExpression: message, Reason: &forbidden, Message: r.Title,
			})
		}
		return p
	}
	refusal := r.refusal
	if refusal == "" {
		refusal = firstOf(r.validations)
	}
	if r.scope == unparameterized {
		holds, message, refusal = r.afterRBAC(&p)
	}
	p.Spec.Variables = append(append(p.Spec.Variables, r.variables...), admissionregistrationv1.Variable{Name: "refusal", Expression: refusal})
	p.Spec.Validations = []admissionregistrationv1.Validation{{
		Expression: holds, MessageExpression: message, Reason: &forbidden,
		// The API server shows this text if the message is too long.
		Message: r.Title,
	}}
	return p
}

// together combines adjacent validations without RBAC checks into one validation, because the API server
// also evaluates the message of each validation that holds. A message cannot check RBAC, so validations
// with RBAC checks stay separate.
func together(validations []validation, variables []admissionregistrationv1.Variable) []validation {
	var all, quiet []validation
	end := func() {
		if len(quiet) > 0 {
			all, quiet = append(all, validation{holding(quiet), "(" + firstOf(quiet) + ")"}), nil
		}
	}
	for _, v := range validations {
		if authorizerChecks(inline(v.expression, variables)) == 0 {
			quiet = append(quiet, v)
			continue
		}
		end()
		all = append(all, v)
	}
	end()
	return all
}

// firstOf returns CEL for the message of the first false validation, or for an empty string if all are
// true. One expression costs the API server less than ten, because preparing an expression takes longer
// than evaluating most of them.
func firstOf(validations []validation) string {
	refusal := "''"
	for _, v := range slices.Backward(validations) {
		refusal = fmt.Sprintf("!(%s) ? %s :\n%s", v.expression, v.message, refusal)
	}
	return refusal
}

// apart returns CEL for the message of the first false validation. If the expression would be too long,
// apart divides it into variables NAME_0, NAME_1 and so on. The API server evaluates a variable only when
// another expression reads it, but it prepares all variables of a policy for each request that the policy
// matches: see docs/design/rules.md.
func apart(name string, validations []validation) (variables []admissionregistrationv1.Variable, refusal string) {
	var parts []string
	for len(validations) > 0 {
		n := 1
		for n < len(validations) && len(firstOf(validations[:n+1])) <= longExpression {
			n++
		}
		parts, validations = append(parts, firstOf(validations[:n])), validations[n:]
	}
	if len(parts) == 1 {
		return nil, parts[0]
	}
	refusal = "''"
	for i, expression := range slices.Backward(parts) {
		part := fmt.Sprintf("%s_%d", name, i)
		variables = append(variables, admissionregistrationv1.Variable{Name: part, Expression: expression})
		refusal = fmt.Sprintf("variables.%[1]s != '' ? variables.%[1]s :\n%[2]s", part, refusal)
	}
	slices.Reverse(variables)
	return variables, refusal
}

// longExpression is the maximum length of an expression, in bytes, before [apart] divides it. When the API
// server compiles an expression, it copies all type parameters of the expression for each of its operators,
// so the time grows with the square of the length.
const longExpression = 8192

// breaksGlass is CEL that is true for users in a break-glass group. Such users are exempt from all rules.
const breaksGlass = "has(params.spec.breakGlass) && has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in params.spec.breakGlass)"

// exempt is CEL for the names of the rules from which the object is exempt.
const exempt = "has(params.spec.exemptions) ? params.spec.exemptions.filter(e, e.namespace == request.namespace && e.kind == request.kind.kind && e.name == variables.name).map(e, string(e.rule)) : []"

// tenant returns CEL for the name of the tenant in a rule's messages. The TenantParameters of a namespace
// name the tenant; a Namespace object is in no namespace and has no parameters.
func (r Rule) tenant(params *admissionregistrationv1.ParamKind) string {
	switch {
	case params.Kind == "TenantParameters":
		return "params.spec.tenant"
	case r.scope == namespaceObjects:
		return tenantName("object", "''")
	case r.scope == ownerNamespaces:
		// A Namespace is in no namespace.
		return tenantOf("(namespaceObject != null ? namespaceObject : object)")
	}
	return tenantName("namespaceObject", "request.namespace")
}

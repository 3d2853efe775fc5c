// Package admission holds the rules that the API server itself enforces for
// tenants, as ValidatingAdmissionPolicies. They are written here once and
// generated into config/admission: each rule becomes two policies with the same
// expressions, one that reads the TenancyProfile, for namespaces that have no
// TenantParameters yet, and one that reads those.
//
// A rule speaks of a change of an object, not of the object: what was there
// before the rule, and is not made worse, may be updated and deleted.
package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Prefix begins the names of all our policies, so that a message of the API
// server says whose rule it is.
const Prefix = "tenure-"

// fromParameters ends the name of the policy that reads TenantParameters.
const fromParameters = "-own"

// Rule is something that tenants may not do.
type Rule struct {
	// Name is what the policies are called, [Prefix] included.
	Name string
	// Title says what holds, for people.
	Title string
	// Rows are the rows of the catalogue of attacks that it stops.
	Rows []string
	// resources are what it looks at.
	resources []admissionregistrationv1.NamedRuleWithOperations
	// conditions are CEL; all must hold for the rule to be asked. By name.
	conditions []admissionregistrationv1.MatchCondition
	// variables are CEL, in order.
	variables []admissionregistrationv1.Variable
	// validations are what must hold.
	validations []validation
	// unbound rules hold in every namespace and read no parameters.
	unbound bool
	// platform rules hold in namespaces of the platform's that have the label
	// for it. They read the profile, and nothing holds without one: the
	// platform must be able to repair itself.
	platform bool
}

// validation is an expression that must hold, and the message if it does not:
// CEL that gives a string, after "tenant NAME: ".
type validation struct{ expression, message string }

// Rules returns all rules, by name.
func Rules() []Rule {
	rules := []Rule{
		accounts(), bounds(), externalArtifacts(), images(), kubeConfigs(), managed(), namespaces(),
		notifications(), parameters(), pods(), references(), sources(), status(), tokens(),
	}
	slices.SortFunc(rules, func(a, b Rule) int { return strings.Compare(a.Name, b.Name) })
	return rules
}

// Policies returns the policies and bindings of all rules, that deny what the
// rules forbid.
func Policies() ([]admissionregistrationv1.ValidatingAdmissionPolicy, []admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	var policies []admissionregistrationv1.ValidatingAdmissionPolicy
	var bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for _, r := range Rules() {
		if r.unbound {
			policies = append(policies, r.policy(r.Name, nil))
			bindings = append(bindings, binding(r.Name, r.Name, nil, nil))
			continue
		}
		policies = append(policies, r.policy(r.Name, &admissionregistrationv1.ParamKind{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TenancyProfile"}))
		if r.platform {
			bindings = append(bindings, platformBinding(r.Name))
			continue
		}
		for i, label := range tenantLabels {
			bindings = append(bindings, binding(r.Name, r.Name+"-"+bindingNames[i], paramRef(v1alpha1.ProfileName), selector(label, tenantLabels[:i])))
		}
		own := r.Name + fromParameters
		policies = append(policies, r.policy(own, &admissionregistrationv1.ParamKind{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TenantParameters"}))
		bindings = append(bindings, binding(own, own, paramRef(v1alpha1.ParametersName), &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.LabelParameters, Operator: metav1.LabelSelectorOpExists}},
		}))
	}
	return policies, bindings
}

// tenantLabels make a namespace a tenant's. A binding cannot select by one label
// or another, so there is a binding for each.
var (
	tenantLabels = []string{v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant}
	bindingNames = []string{"tenure", "flux", "capsule"}
)

// selector selects the namespaces that have the label, none of the others, and
// no parameters of their own: each namespace is selected once.
func selector(label string, others []string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: label, Operator: metav1.LabelSelectorOpExists},
		{Key: v1alpha1.LabelParameters, Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
	for _, other := range others {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: other, Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	return s
}

// platformBinding binds a rule to the namespaces whose images are pinned.
func platformBinding(name string) admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	allow := admissionregistrationv1.AllowAction
	return binding(name, name, &admissionregistrationv1.ParamRef{Name: v1alpha1.ProfileName, ParameterNotFoundAction: &allow}, &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.LabelImages, Operator: metav1.LabelSelectorOpExists}},
	})
}

// paramRef names the parameters. Without them nothing is allowed: a profile that
// somebody deleted opens no door.
func paramRef(name string) *admissionregistrationv1.ParamRef {
	deny := admissionregistrationv1.DenyAction
	return &admissionregistrationv1.ParamRef{Name: name, ParameterNotFoundAction: &deny}
}

func binding(policy, name string, params *admissionregistrationv1.ParamRef, namespaces *metav1.LabelSelector) admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	b := admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels()},
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

func labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "tenure", "app.kubernetes.io/component": "admission"}
}

func (r Rule) policy(name string, params *admissionregistrationv1.ParamKind) admissionregistrationv1.ValidatingAdmissionPolicy {
	fail := admissionregistrationv1.Fail
	p := admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(), Annotations: map[string]string{"tenure.dev/title": r.Title}},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:        params,
			FailurePolicy:    &fail,
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: r.resources},
			MatchConditions:  slices.Clone(r.conditions),
			Variables:        r.variables,
		},
	}
	if params != nil {
		p.Spec.MatchConditions = append([]admissionregistrationv1.MatchCondition{
			{Name: "no-break-glass", Expression: "!has(params.spec.breakGlass) || !has(request.userInfo.groups) || !request.userInfo.groups.exists(g, g in params.spec.breakGlass)"},
			{Name: "not-exempt", Expression: fmt.Sprintf(
				"!has(params.spec.exemptions) || !params.spec.exemptions.exists(e, e.rule == '%s' && e.namespace == request.namespace && e.kind == request.kind.kind && e.name == %s)", r.Name, objectName)},
		}, p.Spec.MatchConditions...)
	}
	ofTenant := params != nil && !r.platform
	if ofTenant {
		p.Spec.Variables = append([]admissionregistrationv1.Variable{{Name: "tenant", Expression: tenantName()}}, p.Spec.Variables...)
	}
	p.Spec.Variables = append([]admissionregistrationv1.Variable{{Name: "name", Expression: objectName}}, p.Spec.Variables...)
	forbidden := metav1.StatusReasonForbidden
	validations := r.validations
	if slices.Contains(r.conditions, specChanged) {
		validations = append([]validation{{"has(object.spec)", what + " + 'needs a spec'"}}, validations...)
	}
	for _, v := range validations {
		message := v.message
		if ofTenant {
			message = "'tenant ' + variables.tenant + ': ' + " + message
		}
		p.Spec.Validations = append(p.Spec.Validations, admissionregistrationv1.Validation{
			Expression: v.expression, MessageExpression: message, Reason: &forbidden,
			// For when the message cannot be made of what is in the object, as
			// with a line break.
			Message: r.Title,
		})
	}
	return p
}

// tenantName is CEL for the name of the tenant that a namespace belongs to.
func tenantName() string {
	expression := "request.namespace"
	for _, label := range slices.Backward(tenantLabels) {
		expression = fmt.Sprintf("'%[1]s' in namespaceObject.metadata.labels ? namespaceObject.metadata.labels['%[1]s'] : %[2]s", label, expression)
	}
	return expression
}

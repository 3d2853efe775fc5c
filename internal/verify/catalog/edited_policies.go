package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addEditedPolicies(register func(...Attack)) {
	register(Attack{
		ID: "I17", Via: API, Owners: OwnersAnywhere,
		Kinds:      []string{"TenancyProfile", "Tenant", "TenantParameters"},
		Title:      "edits its Tenant, the TenancyProfile, its TenantParameters, the policies or their parameters, or makes an exception from them",
		Controls:   []string{"RBAC", "policy on TenantParameters"},
		References: []string{"CVE-2022-46167"},
		Fix:        Fix{Advice: "give tenants and owners of Tenants no write verb on tenants, tenancyprofiles, tenantparameters, capsuleconfigurations, admission policies, their bindings and webhook configurations; with Kyverno, let --exceptionNamespace name a namespace of the platform in which no tenant writes policyexceptions", Rights: true},
		Slow:       true,
		Run:        editsItsBounds,
	})
}

// admissionKinds are the kinds of policies and webhooks.
var admissionKinds = []string{
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
}

// editsItsBounds tries to change each object that restricts tenants, and to create another policy.
func editsItsBounds(ctx context.Context, e *Scenario) Finding {
	all := []request{{
		what: "make an admission policy's binding",
		aimed: creating(func(*Scenario) *unstructured.Unstructured {
			return object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", name("i17"), map[string]any{
				"spec": map[string]any{"policyName": name("i17"), "validationActions": []any{"Deny"}},
			})
		}),
	}}
	const tenure, capsule = "tenure.dev/v1alpha1", "capsule.clastix.io/v1beta2"
	deciding := []*unstructured.Unstructured{
		object(tenure, "Tenant", "", e.Tenant.Name, nil),
		object(tenure, "TenancyProfile", "", v1alpha1.ProfileName, nil),
		object(tenure, "TenantParameters", e.Namespace, v1alpha1.ParametersName, nil),
		object(capsule, "Tenant", "", e.Tenant.Name, nil),
		object(capsule, "CapsuleConfiguration", "", "default", nil),
		object(capsule, "RuleStatus", e.Namespace, v1beta2.RulesName, nil),
	}
	for _, kind := range admissionKinds {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("admissionregistration.k8s.io/v1")
		list.SetKind(kind + "List")
		if err := e.Admin.List(ctx, list, client.Limit(1)); err != nil && !meta.IsNoMatchError(err) {
			return notProven(fmt.Sprintf("cannot list the objects of kind %s: %s", kind, firstLine(err.Error())))
		}
		for i := range list.Items {
			deciding = append(deciding, &list.Items[i])
		}
	}
	for _, u := range deciding {
		there, err := e.exists(ctx, u)
		if err != nil {
			return notProven("cannot read the objects that decide about the tenant: " + firstLine(err.Error()))
		}
		if there {
			all = append(all, request{what: "change " + u.GetKind() + " " + u.GetName(), aimed: merging(u, `{"metadata":{"annotations":{"tenure-attack":"i17"}}}`)})
		}
	}
	params, err := e.editsParameters(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	calls, err := e.answersCalls(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	exceptions, err := e.exceptsItself(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	return requests(slices.Concat(all, params, calls, exceptions)...)(ctx, e)
}

// editsParameters returns the requests with which the tenant would change or delete the parameters that a
// policy of the fleet reads in the tenant's namespaces. editsItsBounds covers Tenure's parameters.
func (e *Scenario) editsParameters(ctx context.Context) ([]request, error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&policies, &bindings} {
		if err := e.Admin.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot read the policies: %w", err)
		}
	}
	var all []request
	for _, b := range bindings.Items {
		i := slices.IndexFunc(policies.Items, func(p admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == b.Spec.PolicyName })
		if i < 0 || b.Spec.ParamRef == nil || policies.Items[i].Spec.ParamKind == nil || strings.HasPrefix(b.Spec.PolicyName, admission.Prefix) {
			continue
		}
		params, err := e.parametersOf(ctx, *policies.Items[i].Spec.ParamKind, *b.Spec.ParamRef)
		if err != nil {
			return nil, err
		}
		for _, u := range params {
			// If the binding names no namespace, a parameter applies to requests in the parameter's own
			// namespace.
			if b.Spec.ParamRef.Namespace == "" && !e.selectsNamespace(u.GetNamespace(), b.Spec.MatchResources, policies.Items[i].Spec.MatchConstraints) {
				continue
			}
			what := fmt.Sprintf("%s %s/%s, which policy %s reads", u.GetKind(), u.GetNamespace(), u.GetName(), b.Spec.PolicyName)
			all = append(all, request{what: "change " + what, aimed: changing(&u, `{"data":{"tenure-attack":"i17"}}`)})
			if action := b.Spec.ParamRef.ParameterNotFoundAction; action != nil && *action == admissionv1.AllowAction {
				all = append(all, request{what: "delete " + what, aimed: func(ctx context.Context, e *Scenario) error {
					return e.As.Delete(ctx, u.DeepCopy(), client.DryRunAll)
				}})
			}
		}
	}
	return all, nil
}

// selectsNamespace reports whether all matches of a policy and its binding select a namespace.
func (e *Scenario) selectsNamespace(name string, matches ...*admissionv1.MatchResources) bool {
	i := slices.IndexFunc(e.namespaces, func(ns corev1.Namespace) bool { return ns.Name == name })
	return i >= 0 && !slices.ContainsFunc(matches, func(m *admissionv1.MatchResources) bool {
		if m == nil || m.NamespaceSelector == nil {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(m.NamespaceSelector)
		return err == nil && !selector.Matches(labels.Set(e.namespaces[i].Labels))
	})
}

// parametersOf returns the parameters of a binding in the tenant's namespaces.
func (e *Scenario) parametersOf(ctx context.Context, kind admissionv1.ParamKind, ref admissionv1.ParamRef) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(kind.APIVersion)
	list.SetKind(kind.Kind)
	var of []client.ListOption
	if ref.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
		if err != nil {
			return nil, fmt.Errorf("cannot read a selector of parameters: %w", err)
		}
		of = append(of, client.MatchingLabelsSelector{Selector: selector})
	}
	if err := e.Admin.List(ctx, list, of...); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("cannot read the parameters of kind %s: %w", kind.Kind, err)
	}
	return slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool {
		return !slices.Contains(e.Tenant.Namespaces, u.GetNamespace()) || ref.Name != "" && u.GetName() != ref.Name || ref.Namespace != "" && u.GetNamespace() != ref.Namespace
	}), nil
}

// merging returns a dry run that changes an object with a JSON merge patch.
func merging(u *unstructured.Unstructured, patch string) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		return e.As.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
}

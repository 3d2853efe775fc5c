package catalog

import (
	"context"
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addEditedPolicies(register func(...Attack)) {
	register(Attack{
		ID: "I17", Via: API, Owners: OwnersAnywhere,
		Kinds:      []string{"TenancyProfile", "Tenant", "TenantParameters"},
		Title:      "edits its Tenant, the TenancyProfile, its TenantParameters or the policies",
		Controls:   []string{"RBAC", "policy on TenantParameters"},
		References: []string{"CVE-2022-46167"},
		Fix:        Fix{Advice: "give tenants and owners of Tenants no write verb on tenants, tenancyprofiles, tenantparameters, capsuleconfigurations, admission policies, their bindings and webhook configurations", Rights: true},
		Slow:       true,
		Run:        editsItsBounds,
	})
}

// admissionKinds are what policies and webhooks consist of.
var admissionKinds = []string{
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
}

// editsItsBounds tries to change each thing that decides about tenants, and to
// bring another policy.
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
	return requests(all...)(ctx, e)
}

// merging is a request that changes an object by a JSON merge patch, in a dry run.
func merging(u *unstructured.Unstructured, patch string) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		return e.As.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
}

package catalog

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addNamespaceLabels(register func(...Attack)) {
	register(Attack{
		ID: "I6", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"Namespace", "Namespace/finalize", "Namespace/status"},
		Title:      "changes the labels of its namespace on which controls depend",
		Controls:   []string{"RBAC", "policy on Namespaces"},
		References: []string{"CVE-2022-46167", "CVE-2026-30963"},
		Fix: Fix{
			Advice: "give the tenant's role no write verb on namespaces and their subresources",
			Rights: true,
			Denied: []rbacv1.PolicyRule{
				denied("", writing, "namespaces", "namespaces/status", "namespaces/finalize"),
			},
		},
		Run: relabelling((*Scenario).leaves,
			request{what: "switch off Pod Security in its namespace", aimed: patchNamespace("", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)},
			request{what: "write its namespace's status", aimed: patchNamespace("status", `{"status":{"phase":"Active"}}`)},
			request{what: "finalize its namespace", aimed: func(ctx context.Context, e *Scenario) error { return finalize(ctx, e, e.Namespace) }},
		),
	})
}

// leaves returns a request for each label by which a limiting object selects the tenant's namespace: quotas
// of its Tenant, policies and webhooks.
func (e *Scenario) leaves(ctx context.Context) ([]request, error) {
	tenant, err := e.tenant(ctx)
	if err != nil {
		return nil, err
	}
	limits, err := e.limitingPolicies(ctx)
	if err != nil {
		return nil, err
	}
	if tenant != nil {
		for _, q := range tenant.Spec.Quotas {
			limits = append(limits, selection{"quota " + q.Name + " of its Tenant", q.NamespaceSelector})
		}
	}
	return e.relabels(ctx, limits, changesToLeave, "leave the %s, which selects its namespace by the label %s")
}

// limitingPolicies returns the policies and webhooks that refuse or change requests, and the ClusterNetworkPolicies.
func (e *Scenario) limitingPolicies(ctx context.Context) ([]selection, error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	var webhooks admissionv1.ValidatingWebhookConfigurationList
	var mutations admissionv1.MutatingAdmissionPolicyList
	var mutationBindings admissionv1.MutatingAdmissionPolicyBindingList
	var mutating admissionv1.MutatingWebhookConfigurationList
	for _, list := range []client.ObjectList{&policies, &bindings, &webhooks, &mutations, &mutationBindings, &mutating} {
		if err := e.Admin.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("cannot read the policies: %w", err)
		}
	}
	var all []selection
	add := func(what string, matches ...*admissionv1.MatchResources) {
		for _, m := range matches {
			if m != nil {
				all = append(all, selection{what, m.NamespaceSelector})
			}
		}
	}
	validating, changing := map[string]*admissionv1.MatchResources{}, map[string]*admissionv1.MatchResources{}
	for _, p := range policies.Items {
		validating[p.Name] = p.Spec.MatchConstraints
	}
	for _, p := range mutations.Items {
		changing[p.Name] = p.Spec.MatchConstraints
	}
	// A policy without a binding refuses and changes nothing.
	for _, b := range bindings.Items {
		add("ValidatingAdmissionPolicy "+b.Spec.PolicyName, validating[b.Spec.PolicyName], b.Spec.MatchResources)
	}
	for _, b := range mutationBindings.Items {
		add("MutatingAdmissionPolicy "+b.Spec.PolicyName, changing[b.Spec.PolicyName], b.Spec.MatchResources)
	}
	for _, configuration := range webhooks.Items {
		for _, w := range configuration.Webhooks {
			all = append(all, selection{"webhook " + w.Name, w.NamespaceSelector})
		}
	}
	for _, configuration := range mutating.Items {
		for _, w := range configuration.Webhooks {
			all = append(all, selection{"webhook " + w.Name, w.NamespaceSelector})
		}
	}
	kyverno, err := e.kyvernoSelections(ctx)
	if err != nil {
		return nil, err
	}
	all = append(all, kyverno...)
	networks, _, err := e.clusterPolicies(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the network policies of the cluster: %w", err)
	}
	for _, p := range networks {
		all = append(all, selection{p.Name, p.Subject.selector()})
	}
	return all, nil
}

// kyvernoSelections returns the selectors of namespaces in the rules of Kyverno's policies that refuse requests.
func (e *Scenario) kyvernoSelections(ctx context.Context) ([]selection, error) {
	policies, err := listOfKyverno(ctx, e.Admin, kyvernoPolicies[0])
	if err != nil {
		return nil, err
	}
	var all []selection
	for _, policy := range policies {
		if !refuses(policy) {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(policy.Object, "spec", "rules")
		for _, rule := range rules {
			fields, _ := rule.(map[string]any)
			for _, filter := range filtersOf(fields["match"]) {
				content, found, _ := unstructured.NestedMap(filter, "resources", "namespaceSelector")
				selector := &metav1.LabelSelector{}
				if found && runtime.DefaultUnstructuredConverter.FromUnstructured(content, selector) == nil {
					all = append(all, selection{kyvernoPolicy + policy.GetName(), selector})
				}
			}
		}
	}
	return all, nil
}

// patchNamespace patches the tenant's own namespace, or a subresource of it.
func patchNamespace(subresource, patch string) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error { return patchAny(ctx, e, e.Namespace, subresource, patch) }
}

// patchAny patches a namespace, or a subresource of it, in a dry run.
func patchAny(ctx context.Context, e *Scenario, namespace, subresource, patch string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	p := client.RawPatch(types.MergePatchType, []byte(patch))
	if subresource == "" {
		return e.As.Patch(ctx, ns, p, client.DryRunAll)
	}
	return e.As.SubResource(subresource).Patch(ctx, ns, p, client.DryRunAll)
}

// finalize removes the finalizers of a namespace that is being deleted, in a dry run.
func finalize(ctx context.Context, e *Scenario, namespace string) error {
	ns := &corev1.Namespace{}
	if err := e.Admin.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return fmt.Errorf("cannot read the namespace: %w", err)
	}
	return e.As.SubResource("finalize").Update(ctx, ns, client.DryRunAll)
}

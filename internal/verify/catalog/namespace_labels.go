package catalog

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
		Run: changesLabels(
			request{what: "switch off Pod Security in its namespace", aimed: patchNamespace("", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)},
			request{what: "write its namespace's status", aimed: patchNamespace("status", `{"status":{"phase":"Active"}}`)},
			request{what: "finalize its namespace", aimed: func(ctx context.Context, e *Scenario) error { return finalize(ctx, e, e.Namespace) }},
		),
	})
}

// changesLabels is [requests] with a request to leave each object that limits the tenant's namespace and
// selects it by a label. A label that the platform lets owners choose is no control.
func changesLabels(all ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		leaves, err := e.leaves(ctx)
		if err != nil {
			return notProven("cannot read what selects the tenant's namespace by its labels: " + firstLine(err.Error()))
		}
		return requests(append(slices.Clone(all), leaves...)...)(ctx, e)
	}
}

// leaves returns a request for each label by which something that limits the tenant's namespace selects
// it: quotas of its Tenant, policies and webhooks.
func (e *Scenario) leaves(ctx context.Context) ([]request, error) {
	tenant, err := e.tenant(ctx)
	if err != nil {
		return nil, err
	}
	chosen, err := e.chosenLabels(ctx, tenant)
	if err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{}
	if err := e.Admin.Get(ctx, client.ObjectKey{Name: e.Namespace}, ns); err != nil {
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
	var all []request
	var patches []string
	for _, l := range limits {
		for _, change := range changesToLeave(l.selector, ns.Labels) {
			patch := patchOf([]labelChange{change})
			if isChosen(chosen, change.key) || slices.Contains(patches, patch) {
				continue
			}
			patches = append(patches, patch)
			all = append(all, request{
				what:  fmt.Sprintf("leave the %s, which selects its namespace by the label %s", l.what, change.key),
				aimed: patchNamespace("", patch),
			})
		}
	}
	return all, nil
}

// tenant returns the Tenant object of the tenant, or nil if there is none.
func (e *Scenario) tenant(ctx context.Context) (*v1alpha1.Tenant, error) {
	content := object(v1alpha1.GroupVersion.String(), "Tenant", "", e.Tenant.Name, nil)
	if there, err := e.exists(ctx, content); err != nil || !there {
		return nil, err
	}
	if err := e.Admin.Get(ctx, keyOf(content), content); err != nil {
		return nil, err
	}
	tenant := &v1alpha1.Tenant{}
	return tenant, runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, tenant)
}

// chosenLabels returns the patterns of the labels that owners of a Tenant, which may be nil, choose.
func (e *Scenario) chosenLabels(ctx context.Context, tenant *v1alpha1.Tenant) ([]v1alpha1.ValuePattern, error) {
	profile, err := e.profile(ctx)
	if err != nil {
		return nil, err
	}
	var chosen []v1alpha1.ValuePattern
	if profile != nil {
		chosen = profile.Spec.NamespaceMetadata.Labels
	}
	if tenant != nil {
		chosen = slices.Concat(chosen, tenant.Spec.Namespaces.Allowed.Labels)
	}
	return chosen, nil
}

// isChosen reports whether a key is in a list of those that owners choose, in which * stands for any letters.
func isChosen[P ~string](list []P, key string) bool {
	return slices.ContainsFunc(list, func(pattern P) bool {
		whole := "^" + strings.ReplaceAll(regexp.QuoteMeta(string(pattern)), `\*`, ".*") + "$"
		matched, err := regexp.MatchString(whole, key)
		return err == nil && matched
	})
}

// selection is an object that selects namespaces by their labels; selector may be nil.
type selection struct {
	what     string
	selector *metav1.LabelSelector
}

// limitingPolicies returns the policies and webhooks that refuse requests, and the ClusterNetworkPolicies.
func (e *Scenario) limitingPolicies(ctx context.Context) ([]selection, error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	var webhooks admissionv1.ValidatingWebhookConfigurationList
	for _, list := range []client.ObjectList{&policies, &bindings, &webhooks} {
		if err := e.Admin.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot read the policies: %w", err)
		}
	}
	var all []selection
	of := map[string]*metav1.LabelSelector{}
	for _, p := range policies.Items {
		if p.Spec.MatchConstraints != nil {
			of[p.Name] = p.Spec.MatchConstraints.NamespaceSelector
		}
	}
	// A policy without a binding refuses nothing.
	for _, b := range bindings.Items {
		what := "ValidatingAdmissionPolicy " + b.Spec.PolicyName
		all = append(all, selection{what, of[b.Spec.PolicyName]})
		if b.Spec.MatchResources != nil {
			all = append(all, selection{what, b.Spec.MatchResources.NamespaceSelector})
		}
	}
	for _, configuration := range webhooks.Items {
		for _, w := range configuration.Webhooks {
			all = append(all, selection{"webhook " + w.Name, w.NamespaceSelector})
		}
	}
	networks, _, err := e.clusterPolicies(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the network policies of the cluster: %w", err)
	}
	for _, p := range networks {
		selector := p.Subject.Namespaces
		if p.Subject.Pods != nil {
			selector = &p.Subject.Pods.NamespaceSelector
		}
		all = append(all, selection{p.Name, selector})
	}
	return all, nil
}

// labelChange gives a label a value, or removes the label if the value is nil.
type labelChange struct {
	key   string
	value *string
}

// changesToLeave returns, for each label of a selector, the change of this label alone that takes a namespace
// out of the selector, if there is one. The API server itself sets the label with the name of the namespace.
func changesToLeave(selector *metav1.LabelSelector, current labels.Set) []labelChange {
	matching, err := metav1.LabelSelectorAsSelector(selector)
	if selector == nil || err != nil || !matching.Matches(current) {
		return nil
	}
	added := "tenure-attack-i6"
	candidates := map[string][]*string{}
	for key := range selector.MatchLabels {
		candidates[key] = []*string{nil}
	}
	for _, expression := range selector.MatchExpressions {
		values := append(candidates[expression.Key], nil, &added)
		if expression.Operator == metav1.LabelSelectorOpNotIn {
			values = append(values, &expression.Values[0])
		}
		candidates[expression.Key] = values
	}
	delete(candidates, corev1.LabelMetadataName)
	var all []labelChange
	for _, key := range slices.Sorted(maps.Keys(candidates)) {
		for _, value := range candidates[key] {
			changed := labels.Merge(current, nil)
			delete(changed, key)
			if value != nil {
				changed[key] = *value
			}
			if !matching.Matches(changed) {
				all = append(all, labelChange{key, value})
				break
			}
		}
	}
	return all
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

// finalize asks to let go of a namespace that is being deleted, in a dry run.
func finalize(ctx context.Context, e *Scenario, namespace string) error {
	ns := &corev1.Namespace{}
	if err := e.Admin.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return fmt.Errorf("cannot read the namespace: %w", err)
	}
	return e.As.SubResource("finalize").Update(ctx, ns, client.DryRunAll)
}

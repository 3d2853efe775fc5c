package catalog

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
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

// changesLabels is [requests] with a request to leave each quota of its Tenant that selects
// the tenant's namespace by a label. A label that the platform lets owners choose is no control.
func changesLabels(all ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		leaves, err := e.leavesQuotas(ctx)
		if err != nil {
			return notProven("cannot read the quotas of the Tenant: " + firstLine(err.Error()))
		}
		return requests(append(slices.Clone(all), leaves...)...)(ctx, e)
	}
}

// leavesQuotas returns a request for each label by which a quota of the Tenant selects the tenant's namespace.
func (e *Scenario) leavesQuotas(ctx context.Context) ([]request, error) {
	content := object(v1alpha1.GroupVersion.String(), "Tenant", "", e.Tenant.Name, nil)
	if there, err := e.exists(ctx, content); err != nil || !there {
		return nil, err
	}
	if err := e.Admin.Get(ctx, keyOf(content), content); err != nil {
		return nil, err
	}
	var tenant v1alpha1.Tenant
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, &tenant); err != nil {
		return nil, err
	}
	profile, err := e.profile(ctx)
	if err != nil {
		return nil, err
	}
	chosen := tenant.Spec.Namespaces.Allowed.Labels
	if profile != nil {
		chosen = slices.Concat(chosen, profile.Spec.NamespaceMetadata.Labels)
	}
	ns := &corev1.Namespace{}
	if err := e.Admin.Get(ctx, client.ObjectKey{Name: e.Namespace}, ns); err != nil {
		return nil, err
	}
	var all []request
	for _, q := range tenant.Spec.Quotas {
		selector, err := metav1.LabelSelectorAsSelector(q.NamespaceSelector)
		if q.NamespaceSelector == nil || err != nil || !selector.Matches(labels.Set(ns.Labels)) {
			continue
		}
		for _, key := range selectedKeys(q.NamespaceSelector) {
			left := labels.Set{}
			maps.Copy(left, ns.Labels)
			value := "null"
			if _, labelled := left[key]; labelled {
				delete(left, key)
			} else {
				left[key], value = "tenure-attack-i6", `"tenure-attack-i6"`
			}
			if selector.Matches(left) || isChosen(chosen, key) {
				continue
			}
			all = append(all, request{
				what:  fmt.Sprintf("leave the quota %s of its Tenant, which selects its namespace by the label %s", q.Name, key),
				aimed: patchNamespace("", fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)),
			})
		}
	}
	return all, nil
}

// isChosen reports whether a key is in a list of those that owners choose, in which * stands for any letters.
func isChosen[P ~string](list []P, key string) bool {
	return slices.ContainsFunc(list, func(pattern P) bool {
		whole := "^" + strings.ReplaceAll(regexp.QuoteMeta(string(pattern)), `\*`, ".*") + "$"
		matched, err := regexp.MatchString(whole, key)
		return err == nil && matched
	})
}

// selectedKeys returns the keys of the labels that a selector names.
func selectedKeys(selector *metav1.LabelSelector) []string {
	keys := slices.Sorted(maps.Keys(selector.MatchLabels))
	for _, expression := range selector.MatchExpressions {
		keys = append(keys, expression.Key)
	}
	return slices.Compact(keys)
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

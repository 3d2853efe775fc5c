package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	operators "k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addPrivilegedNamespaceLabels(register func(...Attack)) {
	label := func(what, key string) request {
		return request{what: what, aimed: patchNamespace("", `{"metadata":{"labels":{"`+key+`":"true"}}}`)}
	}
	register(Attack{
		ID: "I18", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"Namespace"},
		Title:      "puts labels on its own namespace that grant rights elsewhere",
		Controls:   []string{"RBAC", "policy with protected label prefixes"},
		References: []string{"Kubernetes: dynamic resource allocation, admin access", "Gateway API: cross-namespace routing"},
		Fix:        Fix{Advice: "give the tenant's role no write verb on namespaces, or protect the labels that others select by with a ValidatingAdmissionPolicy", Rights: true},
		Run: joinsSelections(
			label("let its namespace attach routes to a shared gateway", "shared-gateway-access"),
			label("let its namespace claim devices with admin access", "resource.kubernetes.io/admin-access"),
			label("exempt its namespace from policies", "admission.gatekeeper.sh/ignore"),
		),
	})
}

// maxJoins is the maximum number of selections that an attack tries to join.
const maxJoins = 16

// joinsSelections is [requests] with a request to join each selection of namespaces by which others grant
// something: connections, routes and images. Labels that the platform lets owners choose are no control.
func joinsSelections(all ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		joins, err := e.joins(ctx)
		if err != nil {
			return notProven("cannot read what others grant to namespaces by their labels: " + firstLine(err.Error()))
		}
		return requests(append(slices.Clone(all), joins...)...)(ctx, e)
	}
}

// joins returns the requests to join, at most [maxJoins].
func (e *Scenario) joins(ctx context.Context) ([]request, error) {
	grants, err := e.grantingSelections(ctx)
	if err != nil || len(grants) == 0 {
		return nil, err
	}
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
	var all []request
	var patches []string
	for _, g := range grants {
		changes := changesToJoin(g.selector, ns.Labels)
		if !slices.ContainsFunc(changes, func(c labelChange) bool { return !isChosen(chosen, c.key) }) {
			continue
		}
		patch := patchOf(changes)
		if slices.Contains(patches, patch) || len(patches) == maxJoins {
			continue
		}
		patches = append(patches, patch)
		all = append(all, request{what: fmt.Sprintf("be selected by the %s, with other labels on its namespace", g.what), aimed: patchNamespace("", patch)})
	}
	return all, nil
}

// grantingSelections returns the selectors by which objects outside of the tenant's namespaces grant something
// to namespaces: NetworkPolicies, listeners of Gateways and ImageRepositories.
func (e *Scenario) grantingSelections(ctx context.Context) ([]selection, error) {
	var networks networkingv1.NetworkPolicyList
	if err := e.Admin.List(ctx, &networks); err != nil {
		return nil, fmt.Errorf("cannot read the network policies: %w", err)
	}
	var all []selection
	for _, p := range networks.Items {
		if slices.Contains(e.Tenant.Namespaces, p.Namespace) {
			continue
		}
		for _, rule := range p.Spec.Ingress {
			for _, peer := range rule.From {
				all = append(all, selection{"NetworkPolicy " + p.Namespace + "/" + p.Name, peer.NamespaceSelector})
			}
		}
	}
	for _, kind := range []struct {
		kind      schema.GroupVersionKind
		selectors func(*unstructured.Unstructured) []any
	}{
		{schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}, routeSelectors},
		{flux.ImageRepository.GroupVersionKind(), accessSelectors},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.kind)
		if err := e.Admin.List(ctx, list); err != nil {
			if meta.IsNoMatchError(err) {
				continue
			}
			return nil, fmt.Errorf("cannot read the objects of kind %s: %w", kind.kind.Kind, err)
		}
		for _, u := range list.Items {
			if slices.Contains(e.Tenant.Namespaces, u.GetNamespace()) {
				continue
			}
			for _, found := range kind.selectors(&u) {
				fields, _ := found.(map[string]any)
				selector := &metav1.LabelSelector{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selector); err != nil {
					return nil, fmt.Errorf("%s %s/%s: %w", kind.kind.Kind, u.GetNamespace(), u.GetName(), err)
				}
				all = append(all, selection{kind.kind.Kind + " " + u.GetNamespace() + "/" + u.GetName(), selector})
			}
		}
	}
	return all, nil
}

// routeSelectors returns the selectors of the namespaces whose routes the listeners of a Gateway accept.
func routeSelectors(gateway *unstructured.Unstructured) []any {
	var all []any
	listeners, _, _ := unstructured.NestedSlice(gateway.Object, "spec", "listeners")
	for _, listener := range listeners {
		fields, _ := listener.(map[string]any)
		if selector, ok, _ := unstructured.NestedMap(fields, "allowedRoutes", "namespaces", "selector"); ok {
			all = append(all, selector)
		}
	}
	return all
}

// accessSelectors returns the selectors of the namespaces that may use an object of Flux.
func accessSelectors(u *unstructured.Unstructured) []any {
	all, _, _ := unstructured.NestedSlice(u.Object, "spec", "accessFrom", "namespaceSelectors")
	return all
}

// changesToJoin returns the changes of labels after which a selector matches a namespace, sorted by their
// keys: none if it matches already, or if no change achieves it, such as one of the label with its name.
func changesToJoin(selector *metav1.LabelSelector, current labels.Set) []labelChange {
	matching, err := metav1.LabelSelectorAsSelector(selector)
	if selector == nil || err != nil || matching.Matches(current) {
		return nil
	}
	requirements, _ := matching.Requirements()
	changed := labels.Merge(current, nil)
	var changes []labelChange
	for _, r := range requirements {
		if r.Matches(changed) {
			continue
		}
		change := labelChange{key: r.Key()}
		if values := r.ValuesUnsorted(); r.Operator() != operators.NotIn && r.Operator() != operators.DoesNotExist {
			value := "tenure-attack-i18"
			if len(values) > 0 {
				value = slices.Min(values)
			}
			change.value = &value
			changed[r.Key()] = value
		} else {
			delete(changed, r.Key())
		}
		changes = append(changes, change)
	}
	if !matching.Matches(changed) || changed[corev1.LabelMetadataName] != current[corev1.LabelMetadataName] {
		return nil
	}
	return changes
}

// patchOf returns changes as one merge patch of a namespace.
func patchOf(changes []labelChange) string {
	changed := map[string]*string{}
	for _, c := range changes {
		changed[c.key] = c.value
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changed}})
	return string(patch)
}

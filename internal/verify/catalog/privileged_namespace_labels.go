package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		Run: relabelling((*Scenario).joins,
			label("let its namespace attach routes to a shared gateway", "shared-gateway-access"),
			label("let its namespace claim devices with admin access", "resource.kubernetes.io/admin-access"),
			label("exempt its namespace from policies", "admission.gatekeeper.sh/ignore"),
		),
	})
}

// joins returns a request for each selector of namespaces by which others grant something.
func (e *Scenario) joins(ctx context.Context) ([]request, error) {
	grants, err := e.grantingSelections(ctx)
	if err != nil {
		return nil, err
	}
	return e.relabels(ctx, grants, changesToJoin, "be selected by the %s, which selects namespaces by the label %s")
}

// grantingSelections returns the selectors by which objects outside of the tenant's namespaces grant
// connections, routes or images to namespaces.
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
	policies, _, err := e.clusterPolicies(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the network policies of the cluster: %w", err)
	}
	for _, p := range policies {
		for _, rule := range p.Ingress {
			if rule.Action == "Deny" {
				continue
			}
			for _, peer := range rule.From {
				all = append(all, selection{p.Name, peer.selector()})
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

// routeSelectors returns the selectors of the namespaces from which the listeners of a Gateway accept
// routes.
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

package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// judgedGroups are the API groups of custom kinds that attacks write. A group covers its subdomains.
var judgedGroups = []string{
	"toolkit.fluxcd.io", "extensions.fluxcd.io", "fluxcd.controlplane.io", "flagger.app",
	"gateway.networking.k8s.io", "gateway.networking.x-k8s.io", "capsule.clastix.io", "tenure.dev",
}

// OtherKinds are the namespaced custom kinds of an API group that no attack writes, and that tenants may
// create or change. The controller of such a kind may act with rights in all namespaces.
type OtherKinds struct {
	Group string
	// Resources are the kinds, as they are named in requests, sorted.
	Resources []string
	// Tenants are the names of the tenants with the right to write one of the kinds, sorted.
	Tenants []string
}

// otherKinds returns the kinds by their groups. The tenants of a shape have the same rights, so it asks for the rights of
// the tenants in full, as all their identities, and like names the tenants of the same shape. It returns
// an error if it cannot read the CustomResourceDefinitions or the rights of an identity.
func otherKinds(ctx context.Context, admin client.Reader, full []*Scenario, like map[string]string) ([]OtherKinds, error) {
	custom, err := customKinds(ctx, admin)
	if err != nil || len(custom) == 0 {
		return nil, err
	}
	found := map[string]*OtherKinds{}
	for _, e := range full {
		rules, err := e.rulesOfAll(ctx)
		if err != nil {
			return nil, err
		}
		names := []string{e.Tenant.Name}
		for other, of := range like {
			if of == e.Tenant.Name {
				names = append(names, other)
			}
		}
		for _, kind := range custom {
			if writes(rules, kind) {
				group := found[kind.Group]
				if group == nil {
					group = &OtherKinds{Group: kind.Group}
					found[kind.Group] = group
				}
				group.Resources = append(group.Resources, kind.Resource)
				group.Tenants = append(group.Tenants, names...)
			}
		}
	}
	all := make([]OtherKinds, 0, len(found))
	for _, group := range slices.Sorted(maps.Keys(found)) {
		of := found[group]
		slices.Sort(of.Resources)
		slices.Sort(of.Tenants)
		of.Resources, of.Tenants = slices.Compact(of.Resources), slices.Compact(of.Tenants)
		all = append(all, *of)
	}
	return all, nil
}

// customKinds returns the namespaced kinds of CustomResourceDefinitions in groups that no attack writes.
func customKinds(ctx context.Context, admin client.Reader) ([]schema.GroupResource, error) {
	crds := &unstructured.UnstructuredList{}
	crds.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	if err := admin.List(ctx, crds); err != nil {
		return nil, fmt.Errorf("cannot read the CustomResourceDefinitions: %w", err)
	}
	var custom []schema.GroupResource
	for _, crd := range crds.Items {
		scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		if scope == "Namespaced" && !judged(group) {
			custom = append(custom, schema.GroupResource{Group: group, Resource: plural})
		}
	}
	slices.SortFunc(custom, func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) })
	return custom, nil
}

// judged reports whether attacks write kinds of an API group.
func judged(group string) bool {
	return slices.ContainsFunc(judgedGroups, func(g string) bool { return group == g || strings.HasSuffix(group, "."+g) })
}

// rulesOfAll returns the rules of the account, the owners and the further identities of the tenant, each in the namespace
// from which it attacks.
func (e *Scenario) rulesOfAll(ctx context.Context) ([]authorizationv1.ResourceRule, error) {
	var rules []authorizationv1.ResourceRule
	for _, as := range slices.Concat([]*Scenario{e}, e.owners, e.unlike, e.holders) {
		has, err := as.rulesIn(ctx, as.Namespace)
		if err != nil {
			return nil, fmt.Errorf("cannot read the rights of %s of tenant %s: %w", as.who.user, e.Tenant.Name, err)
		}
		rules = append(rules, has.ResourceRules...)
	}
	return rules, nil
}

// writes reports whether one of the rules lets somebody create or change objects of a kind.
func writes(rules []authorizationv1.ResourceRule, kind schema.GroupResource) bool {
	return slices.ContainsFunc(rules, func(rule authorizationv1.ResourceRule) bool {
		return slices.ContainsFunc([]string{"create", "update", "patch"}, func(verb string) bool { return covers(rule, verb, kind.String()) })
	})
}

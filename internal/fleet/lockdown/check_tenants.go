package lockdown

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tenantRights checks that no binding gives tenants rights beyond their namespaces, or on other accounts in
// them, and that the namespaces of tenants have the labels by which the rules
// select them.
func (c Cluster) tenantRights(ctx context.Context) ([]Result, error) {
	namespaces, err := c.list(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err != nil {
		return nil, err
	}
	wrong, err := c.rightsOfTenants(ctx)
	if err != nil {
		return nil, err
	}
	results := []Result{result("rights of tenants", len(wrong) == 0, "none reaches beyond a tenant's namespaces, or another account in them", strings.Join(wrong, "; ")).
		advise("remove the binding, or take these rights out of its role").about(wrong...)}
	if c.TenantNamespaces == nil {
		return results, nil
	}
	results = append(results, result("dependencies of the platform", len(c.Dependencies) == 0, "none is an object of a tenant",
		strings.Join(c.Dependencies, "; ")+": a tenant that breaks its object blocks the platform").advise("name only objects of the platform, and do not set spec.wait where tenants' objects are applied").about(c.Dependencies...))
	early, err := c.beforeRules(ctx, namespaces)
	if err != nil {
		return nil, err
	}
	results = append(results, result("order of a new cluster", len(early) == 0, "tenants' namespaces come after the rules", strings.Join(early, "; ")).
		advise(lockDown+"; a namespace that the root Kustomization applies needs a Kustomization of its own").about(early...))
	plain := unlabelled(namespaces, c.TenantNamespaces)
	return append(results, result("labels of tenants", len(plain) == 0, "all namespaces of tenants have one, so that the rules apply in them",
		"the rules for tenants do not apply in "+listed(plain)).advise("add the label "+v1alpha1.LabelFluxTenant+": NAME of the tenant to the Namespace, in the fleet's manifest").about(prefixed("Namespace ", plain)...)), nil
}

// beforeRules returns a message for each Kustomization of the platform that applies a namespace of a tenant and
// waits for the rules neither itself nor by the Kustomization that applies it. It returns nothing where no
// Kustomization applies the manager.
func (c Cluster) beforeRules(ctx context.Context, namespaces []*unstructured.Unstructured) ([]string, error) {
	list, err := c.list(ctx, flux.Kustomization.GroupVersionKind(), client.InNamespace(c.Namespace))
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	syncs := map[string]*unstructured.Unstructured{}
	for _, k := range list {
		syncs[k.GetName()] = k
	}
	if syncs[managerName] == nil {
		return nil, nil
	}
	first := map[string]string{}
	for _, ns := range namespaces {
		by := flux.AppliedBy(ns.GetLabels())
		_, labelled := tenancy.TenantOf(ns.GetLabels())
		if k := syncs[by.Name]; by.Kind == "Kustomization" && by.Namespace == c.Namespace && k != nil && (labelled || c.TenantNamespaces[ns.GetName()] != "") &&
			first[by.Name] == "" && !waitsForManager(syncs, k, nil) {
			first[by.Name] = fmt.Sprintf("Kustomization %s/%s applies Namespace %s of a tenant and does not depend on %s: on a new cluster, objects of the tenant can come before the rules", c.Namespace, by.Name, ns.GetName(), managerName)
		}
	}
	return slices.Sorted(maps.Values(first)), nil
}

// waitsForManager reports whether a Kustomization is applied after the manager is ready: it, a Kustomization
// that it depends on, or the Kustomization that applies it, depends on the manager's. seen are the names of the
// Kustomizations on the way.
func waitsForManager(syncs map[string]*unstructured.Unstructured, k *unstructured.Unstructured, seen []string) bool {
	if k == nil || slices.Contains(seen, k.GetName()) {
		return false
	}
	if dependsOn(k, managerName) {
		return true
	}
	seen = append(seen, k.GetName())
	needs, _, _ := unstructured.NestedSlice(k.Object, "spec", "dependsOn")
	for _, need := range needs {
		fields, _ := need.(map[string]any)
		name, _ := fields["name"].(string)
		if namespace, _ := fields["namespace"].(string); (namespace == "" || namespace == k.GetNamespace()) && waitsForManager(syncs, syncs[name], seen) {
			return true
		}
	}
	by := flux.AppliedBy(k.GetLabels())
	return by.Kind == "Kustomization" && by.Namespace == k.GetNamespace() && waitsForManager(syncs, syncs[by.Name], seen)
}

// unlabelled returns those of the namespaces of tenants that have no tenant's label, sorted.
func unlabelled(namespaces []*unstructured.Unstructured, ofTenants map[string]string) []string {
	var plain []string
	for _, ns := range namespaces {
		if _, ok := tenancy.TenantOf(ns.GetLabels()); !ok && ofTenants[ns.GetName()] != "" {
			plain = append(plain, ns.GetName())
		}
	}
	slices.Sort(plain)
	return plain
}

// prefixed returns texts with a prefix.
func prefixed(prefix string, texts []string) []string {
	var all []string
	for _, text := range texts {
		all = append(all, prefix+text)
	}
	return all
}

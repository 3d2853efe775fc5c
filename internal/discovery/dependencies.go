package discovery

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Dependencies returns a message for each Kustomization, HelmRelease and ResourceSet of the platform that
// waits for an object of a tenant, by name or by spec.wait, or copies one: a tenant that breaks or deletes the object holds up
// the platform. An object in a tenant's namespace is the tenant's, and so is the Kustomization that
// delivers its repository. The messages are sorted. Dependencies returns an error if it cannot list a
// kind that the cluster has.
func Dependencies(ctx context.Context, c client.Reader, tenants []Tenant) ([]string, error) {
	owners := objectOwners(tenants)
	var found []string
	for _, kind := range []flux.Kind{flux.Kustomization, flux.HelmRelease, flux.ResourceSet} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersionKind())
		if err := c.List(ctx, list); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("cannot list the %ss: %w", kind, err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			if owners.of(string(kind), u.GetNamespace(), u.GetName()) != "" {
				continue
			}
			what := fmt.Sprintf("%s %s/%s", kind, u.GetNamespace(), u.GetName())
			for _, d := range dependenciesOf(u) {
				if tenant := owners.of(d.kind, d.namespace, d.name); tenant != "" {
					found = append(found, fmt.Sprintf("%s %s %s %s/%s of tenant %s", what, d.verb, d.kind, d.namespace, d.name, tenant))
				}
			}
			found = append(found, owners.awaited(what, u)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// ownership holds the names of tenants, by namespace and by the Kustomization that delivers for the tenant.
type ownership struct {
	byNamespace map[string]string
	bySync      map[flux.Ref]string
}

func objectOwners(tenants []Tenant) ownership {
	o := ownership{map[string]string{}, map[flux.Ref]string{}}
	for _, t := range tenants {
		for _, namespace := range t.Namespaces {
			o.byNamespace[namespace] = t.Name
		}
		for _, r := range t.Deliveries() {
			o.bySync[r.Kustomization] = t.Name
		}
	}
	return o
}

// of returns the tenant that an object is of, or "".
func (o ownership) of(kind, namespace, name string) string {
	return cmp.Or(o.byNamespace[namespace], o.bySync[flux.Ref{Kind: flux.Kind(kind), Namespace: namespace, Name: name}])
}

// awaited returns a message if an object waits until all that it applied is ready, and tenants' objects
// are among it: one for all tenants, whose list may be long.
func (o ownership) awaited(what string, u *unstructured.Unstructured) []string {
	if wait, _, _ := unstructured.NestedBool(u.Object, "spec", "wait"); !wait {
		return nil
	}
	var tenants []string
	var example string
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "inventory", "entries")
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		id, _ := fields["id"].(string)
		parts := strings.Split(id, "_")
		if len(parts) < 4 || !waitedFor.MatchString(parts[len(parts)-2]) {
			continue
		}
		kind, name := parts[len(parts)-1], strings.Join(parts[1:len(parts)-2], "_")
		if tenant := o.of(kind, parts[0], name); tenant != "" && !slices.Contains(tenants, tenant) {
			tenants = append(tenants, tenant)
			example = cmp.Or(example, fmt.Sprintf("%s %s/%s", kind, parts[0], name))
		}
	}
	if len(tenants) == 0 {
		return nil
	}
	slices.Sort(tenants)
	noun := "tenant"
	if len(tenants) > 1 {
		noun = "tenants"
	}
	return []string{fmt.Sprintf("%s waits, by spec.wait, for objects of %s %s, such as %s", what, noun, strings.Join(tenants, ", "), example)}
}

// waitedFor matches the groups whose objects may fail to become ready after they are applied.
var waitedFor = regexp.MustCompile(`\.toolkit\.fluxcd\.io$|^fluxcd\.controlplane\.io$|^apps$|^batch$`)

// dependency is an object that another one waits for or copies.
type dependency struct{ verb, kind, namespace, name string }

// dependenciesOf returns the dependencies of a Kustomization, a HelmRelease or a ResourceSet.
func dependenciesOf(u *unstructured.Unstructured) []dependency {
	var all []dependency
	add := func(verb, field string) {
		entries, _, _ := unstructured.NestedSlice(u.Object, "spec", field)
		for _, entry := range entries {
			fields, _ := entry.(map[string]any)
			text := func(name string) string { value, _ := fields[name].(string); return value }
			all = append(all, dependency{verb, cmp.Or(text("kind"), u.GetKind()), cmp.Or(text("namespace"), u.GetNamespace()), text("name")})
		}
	}
	add("depends on", "dependsOn")
	add("waits for", "healthChecks")
	if u.GetKind() != string(flux.ResourceSet) {
		return all
	}
	for _, template := range flux.Templates(u) {
		annotations, _, _ := unstructured.NestedStringMap(template, "metadata", "annotations")
		if namespace, name, ok := strings.Cut(annotations[flux.CopyAnnotation], "/"); ok {
			all = append(all, dependency{"copies", fmt.Sprint(template["kind"]), namespace, name})
		}
	}
	return all
}

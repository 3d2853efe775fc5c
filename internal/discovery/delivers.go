package discovery

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mapperOf returns the mapper of a client, or nil if the client has none, such as the
// reader of a cache.
func mapperOf(c client.Reader) meta.RESTMapper {
	if has, ok := c.(interface{ RESTMapper() meta.RESTMapper }); ok {
		return has.RESTMapper()
	}
	return nil
}

// assignDelivers reads the inventories of the tenants' Kustomizations and HelmReleases. The
// mapper may be nil: then assignDelivers guesses the names of resources from their kinds.
func (d *discovery) assignDelivers(mapper meta.RESTMapper) {
	for _, u := range slices.Concat(d.kustomizations, d.releases) {
		t := d.owner(u)
		if t == nil || d.trusted[u.GetNamespace()+"/"+u.GetName()] {
			continue
		}
		for _, kind := range inventory(u) {
			resource := resourceOf(kind, mapper)
			if !slices.Contains(t.Delivers, resource) {
				t.Delivers = append(t.Delivers, resource)
			}
		}
	}
	for _, t := range d.tenants {
		slices.SortFunc(t.Delivers, func(a, b schema.GroupResource) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
		})
	}
}

// inventory returns the kinds in the inventory that Flux stores in an object's status. An
// entry has the id NAMESPACE_NAME_GROUP_KIND and the version.
func inventory(u unstructured.Unstructured) []schema.GroupVersionKind {
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "inventory", "entries")
	var kinds []schema.GroupVersionKind
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		id, _ := fields["id"].(string)
		version, _ := fields["v"].(string)
		parts := strings.Split(id, "_")
		if len(parts) < 4 {
			continue
		}
		kind := schema.GroupVersionKind{Group: parts[len(parts)-2], Version: version, Kind: parts[len(parts)-1]}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// inventoryNamespaces returns the namespaces of the objects in the inventory of a Kustomization,
// sorted, with those that are objects of it themselves.
func inventoryNamespaces(u unstructured.Unstructured) []string {
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "inventory", "entries")
	names := map[string]bool{}
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		id, _ := fields["id"].(string)
		switch parts := strings.Split(id, "_"); {
		case len(parts) < 4:
		case parts[0] != "":
			names[parts[0]] = true
		case parts[len(parts)-1] == "Namespace":
			names[parts[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func resourceOf(kind schema.GroupVersionKind, mapper meta.RESTMapper) schema.GroupResource {
	if mapper != nil {
		if m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); err == nil {
			return m.Resource.GroupResource()
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}

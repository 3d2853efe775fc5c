package remedy

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/internal/tenants"
)

// setLabels gives the tenant's Namespaces labels that they lack.
func (t *tree) setLabels(tenant tenants.Tenant, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		for _, o := range t.objects("Namespace") {
			if !slices.Contains(tenant.Namespaces, o.name()) || str(o.node, "metadata", "labels", key) == labels[key] {
				continue
			}
			t.edit(o.file, func(s *stream) error {
				line := key + ": " + scalar(labels[key]) + "\n"
				switch there := at(s.docs[o.doc], "metadata", "labels"); {
				case there == nil:
					return s.add(o.doc, "labels", "labels:\n  "+line, "metadata")
				case at(there, key) == nil:
					return s.add(o.doc, key, line, "metadata", "labels")
				}
				return s.set(o.doc, labels[key], "metadata", "labels", key)
			})
		}
	}
}

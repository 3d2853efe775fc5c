package remedy

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/internal/tenants"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// setLabels gives the tenant's Namespaces labels that they lack.
func (t *tree) setLabels(tenant tenants.Tenant, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		for _, o := range t.objects("Namespace") {
			if !slices.Contains(tenant.Namespaces, o.name()) || str(o.node, "metadata", "labels", key) == labels[key] {
				continue
			}
			done := t.edit(o.file, func(s *stream) error {
				line := key + ": " + scalar(labels[key]) + "\n"
				switch there := at(s.docs[o.doc], "metadata", "labels"); {
				case there == nil:
					return s.add(o.doc, "labels", "labels:\n  "+line, "metadata")
				case at(there, key) == nil:
					return s.add(o.doc, key, line, "metadata", "labels")
				}
				return s.set(o.doc, labels[key], "metadata", "labels", key)
			})
			if done {
				t.expects = append(t.expects, labelled(o.name(), key, labels[key]))
			}
		}
	}
}

// labelled expects that every Namespace of a name has a label.
func labelled(name, key, value string) expectation {
	return func(after built) bool {
		all := after.find(func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" && o.GetName() == name })
		return len(all) > 0 && !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return o.GetLabels()[key] != value })
	}
}

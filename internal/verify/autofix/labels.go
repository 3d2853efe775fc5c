package autofix

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// setLabels adds missing labels to the tenant's Namespaces.
func (t *tree) setLabels(tenant discovery.Tenant, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		for _, o := range t.objects("Namespace") {
			if !slices.Contains(tenant.Namespaces, o.name()) || yamledit.Str(o.node, "metadata", "labels", key) == labels[key] {
				continue
			}
			done := t.edit(o.file, func(s *yamledit.Stream) error {
				line := key + ": " + yamledit.Scalar(labels[key]) + "\n"
				switch there := yamledit.At(s.Docs[o.doc], "metadata", "labels"); {
				case there == nil:
					return s.Add(o.doc, "labels", "labels:\n  "+line, "metadata")
				case yamledit.At(there, key) == nil:
					return s.Add(o.doc, key, line, "metadata", "labels")
				}
				return s.Set(o.doc, labels[key], "metadata", "labels", key)
			})
			if done {
				t.expects = append(t.expects, labelled(o.name(), key, labels[key]))
			}
		}
	}
}

// labelled returns the expectation that every Namespace of a name has a label.
func labelled(name, key, value string) expectation {
	return func(after built) bool {
		all := after.find(func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" && o.GetName() == name })
		return len(all) > 0 && !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return o.GetLabels()[key] != value })
	}
}

// Package trim reduces Flux objects to the fields that the manager reads, for its cache.
package trim

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Keep returns an object with a few fields of another one, for caches: inventories and values
// can be long. A path has the names of the fields with dots between them, such as
// status.conditions. The objects share the values. Keep returns an error if a path goes through
// the value of another.
func Keep(u *unstructured.Unstructured, paths ...string) (*unstructured.Unstructured, error) {
	kept := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}
	for _, path := range paths {
		fields := strings.Split(path, ".")
		value, found, err := unstructured.NestedFieldNoCopy(u.Object, fields...)
		if err != nil || !found {
			continue
		}
		if err := unstructured.SetNestedField(kept, value, fields...); err != nil {
			return nil, err
		}
	}
	return &unstructured.Unstructured{Object: kept}, nil
}

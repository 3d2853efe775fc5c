package capsule

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestFieldsCoverTheCRD checks that every field of a CRD's spec has an entry, and that every
// entry is a field in each version of the CRD.
func TestFieldsCoverTheCRD(t *testing.T) {
	t.Parallel()
	objects, err := flux.ReadObjects(config.CapsuleCRDs())
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 8 {
		t.Fatalf("%d CRDs, want 8", len(objects))
	}
	for _, crd := range objects {
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			version := v.(map[string]any)
			schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec")
			paths := all("spec", schema)
			fields := Fields(kind)
			for _, path := range paths {
				leaf := !slices.ContainsFunc(paths, func(other string) bool { return other != path && below(other, path) })
				if leaf && !slices.ContainsFunc(fields, func(f Field) bool { return below(path, f.Path) }) {
					t.Errorf("%s %s: %s has no entry", kind, version["name"], path)
				}
			}
			for i, f := range fields {
				if !slices.Contains(paths, f.Path) {
					t.Errorf("%s %s: %s is not in the CRD", kind, version["name"], f.Path)
				}
				if slices.ContainsFunc(fields[:i], func(other Field) bool { return other.Path == f.Path }) {
					t.Errorf("%s: %s has two entries", kind, f.Path)
				}
			}
		}
	}
}

// all returns the paths of all fields of a schema.
func all(path string, schema map[string]any) []string {
	paths := []string{path}
	properties, _, _ := unstructured.NestedMap(schema, "properties")
	for name, p := range properties {
		paths = append(paths, all(path+"."+name, p.(map[string]any))...)
	}
	if items, ok, _ := unstructured.NestedMap(schema, "items"); ok && !strings.HasSuffix(path, "[]") {
		paths = append(paths, all(path+"[]", items)...)
	}
	return paths
}

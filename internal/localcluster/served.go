package localcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// checkServed checks that Flux serves the versions of the root objects. The API
// server rejects an object in a removed version, but only after everything has been
// started, and without the name of the file. folder is the folder from which the
// objects were read, system its path in the fleet.
func checkServed(kinds, root []*unstructured.Unstructured, folder, system string) error {
	versions := servedVersions(kinds)
	var errs []error
	for _, u := range root {
		gvk := u.GroupVersionKind()
		served, known := versions[gvk.GroupKind()]
		if !known || slices.Contains(served, gvk.Version) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %s %s/%s has apiVersion %s, which this version of Flux does not serve any more: change it to %s/%s, as `flux migrate -f .` does",
			path.Join(system, fileOf(folder, u)), gvk.Kind, u.GetNamespace(), u.GetName(), u.GetAPIVersion(), gvk.Group, strings.Join(served, " or ")))
	}
	if len(errs) > 0 {
		return fmt.Errorf("cannot start with the fleet's root objects: %w", errors.Join(errs...))
	}
	return nil
}

// servedVersions returns the served versions of each kind that the CRDs define.
func servedVersions(crds []*unstructured.Unstructured) map[schema.GroupKind][]string {
	served := map[schema.GroupKind][]string{}
	for _, crd := range crds {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		gk := schema.GroupKind{Group: group, Kind: kind}
		for _, v := range versions {
			version, _ := v.(map[string]any)
			if on, _ := version["served"].(bool); on {
				name, _ := version["name"].(string)
				served[gk] = append(served[gk], name)
			}
		}
	}
	return served
}

// fileOf returns the path of the file in folder that contains the object. It returns
// "" if a kustomization has changed the object.
func fileOf(folder string, u *unstructured.Unstructured) string {
	found := ""
	_ = filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read is not where the object was read
		}
		content, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(content), u.GetAPIVersion()) {
			return nil //nolint:nilerr // see above
		}
		objects, err := flux.ReadObjects(content)
		if err != nil {
			return nil //nolint:nilerr // not every file holds objects
		}
		for _, o := range objects {
			if o.GroupVersionKind() == u.GroupVersionKind() && o.GetName() == u.GetName() {
				if found, err = filepath.Rel(folder, file); err == nil {
					return fs.SkipAll
				}
			}
		}
		return nil
	})
	return filepath.ToSlash(found)
}

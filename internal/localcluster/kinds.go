package localcluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// errNoKinds reports a file or folder without a CRD.
var errNoKinds = errors.New("no CustomResourceDefinition is in it")

// readKinds returns the CRDs of --crds. The fleet's own CRDs have precedence: the programs here
// need them.
func (c *Cluster) readKinds() ([]*unstructured.Unstructured, error) {
	var kinds []*unstructured.Unstructured
	for _, name := range c.opts.CRDs {
		found, err := kindsIn(name)
		if err != nil {
			return nil, fmt.Errorf("cannot read --crds %s: %w", name, err)
		}
		kinds = append(kinds, found...)
	}
	return kinds, nil
}

// addKinds adds CRDs that are not there yet.
func (c *Cluster) addKinds(kinds []*unstructured.Unstructured) {
	for _, crd := range kinds {
		if !slices.ContainsFunc(c.objects.kinds, func(u *unstructured.Unstructured) bool { return u.GetName() == crd.GetName() }) {
			c.objects.kinds = append(c.objects.kinds, crd)
		}
	}
}

// kindsIn returns the CRDs in a file, or in the manifests of a folder and its subfolders.
func kindsIn(name string) ([]*unstructured.Unstructured, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%w: name a file or a folder with manifests of CRDs", err)
	}
	var kinds []*unstructured.Unstructured
	err = filepath.WalkDir(name, func(file string, d fs.DirEntry, err error) error {
		ext := filepath.Ext(file)
		if err != nil || d.IsDir() || info.IsDir() && ext != ".yaml" && ext != ".yml" && ext != ".json" {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found, err := crdsOf(content)
		if err != nil && !info.IsDir() {
			return err
		}
		// In a folder, such as a chart's, other files may be templates.
		kinds = append(kinds, found...)
		return nil
	})
	if err == nil && len(kinds) == 0 {
		err = fmt.Errorf("%w: name the CRDs themselves, such as the folder crds of a chart, or a file that `helm show crds` or `helm template --include-crds` wrote", errNoKinds)
	}
	return kinds, err
}

// crdsOf returns the CRDs in a manifest. Their conversion webhooks do not run here.
func crdsOf(content []byte) ([]*unstructured.Unstructured, error) {
	if !bytes.Contains(content, []byte("CustomResourceDefinition")) {
		return nil, nil
	}
	objects, err := flux.ReadObjects(content)
	if err != nil {
		return nil, err
	}
	kinds := slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() != "CustomResourceDefinition" })
	for _, crd := range kinds {
		unstructured.RemoveNestedField(crd.Object, "spec", "conversion")
		unstructured.RemoveNestedField(crd.Object, "status")
	}
	return kinds, nil
}

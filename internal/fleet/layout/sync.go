package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// gitRepository is the usual kind of the root source.
const gitRepository = "GitRepository"

// findSync returns the root Kustomization and the GitRepository that it references. The root
// is the Kustomization with the cluster's path, or else the first one.
func findSync(objects []unstructured.Unstructured, clusterPath string) (Sync, bool) {
	var root *unstructured.Unstructured
	for i, u := range objects {
		if u.GetKind() != "Kustomization" || !strings.HasPrefix(u.GetAPIVersion(), "kustomize.toolkit.fluxcd.io/") {
			continue
		}
		p, _, _ := unstructured.NestedString(u.Object, "spec", "path")
		if root == nil || path.Clean(strings.TrimPrefix(p, "/")) == clusterPath {
			root = &objects[i]
		}
	}
	if root == nil {
		return Sync{}, false
	}
	name, _, _ := unstructured.NestedString(root.Object, "spec", "sourceRef", "name")
	for _, u := range objects {
		if u.GetKind() != gitRepository || u.GetName() != name {
			continue
		}
		sync := Sync{Kind: gitRepository, Namespace: u.GetNamespace(), Source: name, Kustomization: root.GetName()}
		sync.URL, _, _ = unstructured.NestedString(u.Object, "spec", "url")
		sync.Branch, _, _ = unstructured.NestedString(u.Object, "spec", "ref", "branch")
		sync.SecretRef, _, _ = unstructured.NestedString(u.Object, "spec", "secretRef", "name")
		if sync.Namespace == "" {
			sync.Namespace = systemName
		}
		if sync.Branch == "" {
			// Flux's own default.
			sync.Branch = "master"
		}
		return sync, true
	}
	return Sync{}, false
}

// findRoots finds the root objects in the whole repository: a Kustomization that applies the
// cluster's folder, beside its GitRepository, or a FluxConfig of Azure.
func (f *Fleet) findRoots() (Sync, bool) {
	var sync Sync
	eachManifest(os.DirFS(f.Dir), ".", func(file string, content []byte) bool {
		if !bytes.Contains(content, []byte(gitRepository)) {
			return true
		}
		objects, err := parse(content)
		if err != nil {
			return true // a template: the build of its folder reports it
		}
		for _, u := range objects {
			folder, _, _ := unstructured.NestedString(u.Object, "spec", "path")
			if !isRoot(u, objects) || cleanPath(folder) != f.Path {
				continue
			}
			var found bool
			if sync, found = findSync(objects, f.Path); found && sync.URL != "" {
				f.Roots, f.RootFile = rootObjects(objects, sync), file
				return false
			}
		}
		return true
	})
	if f.RootFile != "" {
		return sync, true
	}
	file, config := azureConfig(f.Dir, f.Path)
	if config == nil {
		return Sync{}, false
	}
	f.RootFile = file
	sync, f.Roots = azureRoots(config, f.Path)
	return sync, sync.URL != ""
}

// rootObjects returns the root source and the root Kustomization among objects, with a namespace.
func rootObjects(objects []unstructured.Unstructured, sync Sync) []unstructured.Unstructured {
	var roots []unstructured.Unstructured
	for _, u := range objects {
		if u.GetKind() == gitRepository && u.GetName() == sync.Source || isRoot(u, objects) && u.GetName() == sync.Kustomization {
			if u.GetNamespace() == "" {
				u.SetNamespace(sync.Namespace)
			}
			roots = append(roots, u)
		}
	}
	return roots
}

// syncManifest returns the content that `flux bootstrap git` would write to gotk-sync.yaml.
func syncManifest(s Sync, clusterPath string) []byte {
	return fmt.Appendf(nil, `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata:
  name: %[1]s
  namespace: %[2]s
spec:
  interval: 1m0s
  ref:
    branch: %[3]s
  url: %[4]s
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  name: %[1]s
  namespace: %[2]s
spec:
  interval: 10m0s
  path: ./%[5]s
  prune: true
  sourceRef:
    kind: GitRepository
    name: %[1]s
`, s.Source, s.Namespace, s.Branch, s.URL, clusterPath)
}

// completeKustomization adds the files of the overlay to the kustomization of the system
// folder, and creates the kustomization if it is missing.
func (f *Fleet) completeKustomization() error {
	if len(f.Overlay) == 0 {
		return nil
	}
	name := path.Join(f.declared, kustomizeFile)
	content, err := os.ReadFile(filepath.Join(f.Dir, filepath.FromSlash(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read the fleet: %w", err)
	}
	kustomization := map[string]any{}
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		return fmt.Errorf("cannot read the fleet: %s: %w", name, err)
	}
	if len(kustomization) == 0 {
		kustomization = map[string]any{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
	}
	resources, _ := kustomization["resources"].([]any)
	changed := len(content) == 0
	for _, file := range []string{componentsFile, syncFile} {
		_, wanted := f.Overlay[path.Join(f.declared, file)]
		if len(content) == 0 && !wanted {
			_, err := os.Stat(filepath.Join(f.Dir, filepath.FromSlash(f.declared), file))
			wanted = err == nil
		}
		listed := slices.ContainsFunc(resources, func(r any) bool {
			s, ok := r.(string)
			return ok && path.Clean(s) == file
		})
		if wanted && !listed {
			resources, changed = append(resources, file), true
		}
	}
	if !changed {
		return nil
	}
	kustomization["resources"] = resources
	out, err := yaml.Marshal(kustomization)
	if err != nil {
		return fmt.Errorf("cannot complete %s: %w", name, err)
	}
	f.Overlay[name] = out
	return nil
}

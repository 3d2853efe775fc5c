package layout

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The kinds of root sources. The local cluster cannot serve a Bucket.
const (
	gitRepository = "GitRepository"
	ociRepository = "OCIRepository"
	bucket        = "Bucket"
)

// sourceKinds matches a manifest with a root source.
var sourceKinds = regexp.MustCompile(gitRepository + "|" + ociRepository + "|" + bucket)

// findSync returns the root Kustomization and the source that it references. The root
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
	for i := range objects {
		if u := &objects[i]; references(root, u) {
			return newSync(root, u), true
		}
	}
	return Sync{}, false
}

// references reports whether a Kustomization names a source that may be a root.
func references(kustomization, source *unstructured.Unstructured) bool {
	ref, _, _ := unstructured.NestedStringMap(kustomization.Object, "spec", "sourceRef")
	return sourceKinds.MatchString(source.GetKind()) && source.GetKind() == cmp.Or(ref["kind"], gitRepository) && source.GetName() == ref["name"]
}

// newSync returns the sync of a root Kustomization and its source. The defaults of the branch and
// the tag are Flux's.
func newSync(root, source *unstructured.Unstructured) Sync {
	field := func(path ...string) string {
		text, _, _ := unstructured.NestedString(source.Object, append([]string{"spec"}, path...)...)
		return text
	}
	sync := Sync{
		Kind: source.GetKind(), URL: field("url"), Namespace: cmp.Or(source.GetNamespace(), systemName),
		Source: source.GetName(), Kustomization: root.GetName(), SecretRef: field("secretRef", "name"),
	}
	switch ref, _, _ := unstructured.NestedMap(source.Object, "spec", "ref"); {
	case sync.Kind != ociRepository:
		sync.Branch = cmp.Or(field("ref", "branch"), "master")
	case len(ref) == 0:
		sync.Branch = "latest"
	default:
		sync.Branch = field("ref", "tag")
	}
	return sync
}

// findRoots finds the root objects in the whole repository: a Kustomization that applies the
// cluster's folder, beside its source, or a FluxConfig of Azure.
func (f *Fleet) findRoots() (Sync, bool) {
	var sync Sync
	eachManifest(os.DirFS(f.Dir), ".", func(file string, content []byte) bool {
		if !sourceKinds.Match(content) {
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
			if sync, found = findSync(objects, f.Path); found && (sync.URL != "" || sync.Kind == bucket) {
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
		if u.GetKind() == sync.Kind && u.GetName() == sync.Source || isRoot(u, objects) && u.GetName() == sync.Kustomization {
			if u.GetNamespace() == "" {
				u.SetNamespace(sync.Namespace)
			}
			roots = append(roots, u)
		}
	}
	return roots
}

// inventSync returns the sync of a fleet without one, whose repository has an address.
func inventSync(address, branch string) Sync {
	sync := Sync{Kind: gitRepository, URL: address, Branch: branch, Namespace: systemName, Source: systemName, Kustomization: systemName}
	if rest, ok := strings.CutPrefix(address, "oci://"); ok {
		repository, tag, _ := strings.Cut(rest, ":")
		sync.Kind, sync.URL, sync.Branch = ociRepository, "oci://"+repository, cmp.Or(tag, "latest")
	}
	return sync
}

// syncManifest returns the content that `flux bootstrap` would write to gotk-sync.yaml.
func syncManifest(s Sync, clusterPath string) []byte {
	ref := "branch"
	if s.Kind == ociRepository {
		ref = "tag"
	}
	return fmt.Appendf(nil, `apiVersion: source.toolkit.fluxcd.io/v1
kind: %[6]s
metadata:
  name: %[1]s
  namespace: %[2]s
spec:
  interval: 1m0s
  ref:
    %[7]s: %[3]s
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
    kind: %[6]s
    name: %[1]s
`, s.Source, s.Namespace, s.Branch, s.URL, clusterPath, s.Kind, ref)
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

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

	"github.com/tenure-dev/tenure/internal/flux"
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
		return substitute(text, root)
	}
	sync := Sync{
		Kind: source.GetKind(), URL: field("url"), Namespace: cmp.Or(source.GetNamespace(), systemName),
		Source: source.GetName(), Kustomization: root.GetName(), SecretRef: field("secretRef", "name"),
	}
	switch ref, _, _ := unstructured.NestedMap(source.Object, "spec", "ref"); {
	case sync.Kind != ociRepository:
		sync.Branch = cmp.Or(substitute(flux.Branch(source), root), "master")
	case len(ref) == 0:
		sync.Branch = "latest"
	default:
		sync.Branch = field("ref", "tag")
	}
	return sync
}

// built returns the objects to which the kustomization of a folder builds, or the given ones if it
// does not build: the local cluster builds the system folder again and reports the error.
func (f *Fleet) built(folder string, raw []unstructured.Unstructured) []unstructured.Unstructured {
	root, remove, err := f.withOverlay(folder)
	if err != nil {
		return raw
	}
	defer remove()
	objects, err := flux.Build(root, filepath.Join(root, filepath.FromSlash(folder)))
	if err != nil {
		return raw
	}
	var built []unstructured.Unstructured
	for _, u := range objects {
		built = append(built, *u)
	}
	return built
}

// withOverlay returns a folder with the fleet and its overlay: the fleet's own if the overlay has no
// files, or else a copy, which remove deletes.
func (f *Fleet) withOverlay(folder string) (root string, remove func(), err error) {
	if _, _, err := flux.KustomizationFile(os.DirFS(f.Dir), folder); err != nil {
		return "", nil, err
	}
	if len(f.Overlay) == 0 {
		return f.Dir, func() {}, nil
	}
	if root, err = os.MkdirTemp("", "tenure-fleet-"); err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(root) }
	// The files that kustomize reads: the build of the complete fleet reports others.
	every := func(string) bool { return true }
	eachFile(os.DirFS(f.Dir), ".", every, func(name string, content []byte) bool {
		err = errors.Join(err, writeFile(root, name, content))
		return err == nil
	})
	for name, content := range f.Overlay {
		err = errors.Join(err, writeFile(root, name, content))
	}
	if err != nil {
		remove()
	}
	return root, remove, err
}

func writeFile(root, name string, content []byte) error {
	file := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// findBuiltRoots finds the root objects in what the cluster's folder builds to: an overlay may
// complete a base that has them.
func (f *Fleet) findBuiltRoots() (Sync, bool) {
	objects := f.built(f.Path, nil)
	for _, u := range objects {
		folder, _, _ := unstructured.NestedString(u.Object, "spec", "path")
		if !isRoot(u, objects) || cleanPath(folder) != f.Path {
			continue
		}
		if sync, found := findSync(objects, f.Path); found && (sync.URL != "" || sync.Kind == bucket) {
			f.Roots, f.RootFile = rootObjects(objects, sync), f.kustomizationFile(f.Path)
			return sync, true
		}
	}
	return Sync{}, false
}

// variable matches a variable of postBuild with an optional default.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?[-=]([^}]*))?\}`)

// substitute resolves the variables in a text with the postBuild.substitute of a Kustomization.
func substitute(text string, kustomization *unstructured.Unstructured) string {
	values, _, _ := unstructured.NestedStringMap(kustomization.Object, "spec", "postBuild", "substitute")
	return variable.ReplaceAllStringFunc(text, func(match string) string {
		parts := variable.FindStringSubmatch(match)
		if value, ok := values[parts[1]]; ok {
			return value
		}
		if parts[0] == "${"+parts[1]+"}" {
			return match // it comes from a ConfigMap or a Secret
		}
		return parts[2]
	})
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
			sync.Resolve(&u)
			roots = append(roots, u)
		}
	}
	return roots
}

// inventSync returns the sync of a fleet without one, whose repository has an address. Flux opens
// no repository by SSH without a Secret.
func inventSync(address, branch string) Sync {
	sync := Sync{Kind: gitRepository, URL: address, Branch: branch, Namespace: systemName, Source: systemName, Kustomization: systemName}
	if strings.HasPrefix(address, "ssh://") {
		sync.SecretRef = systemName
	}
	if rest, ok := strings.CutPrefix(address, "oci://"); ok {
		repository, tag, _ := strings.Cut(rest, ":")
		sync.Kind, sync.URL, sync.Branch = ociRepository, "oci://"+repository, cmp.Or(tag, "latest")
	}
	return sync
}

// completeRoot names the source of an invented sync as the Kustomizations in the cluster's folder do whose
// source is not in the repository, and makes the root objects. If one of them applies the cluster's
// folder, it is the root Kustomization. It returns false if they name no other source than a bootstrap
// makes.
func (f *Fleet) completeRoot(sync *Sync) bool {
	root, file := f.outsideRoot(sync.Kind)
	if root == nil {
		return false
	}
	ref, _, _ := unstructured.NestedStringMap(root.Object, "spec", "sourceRef")
	sync.Source, sync.Namespace = ref["name"], cmp.Or(ref["namespace"], root.GetNamespace(), systemName)
	folder, _, _ := unstructured.NestedString(root.Object, "spec", "path")
	if cleanPath(folder) == f.Path {
		root.SetNamespace(cmp.Or(root.GetNamespace(), systemName))
		sync.Kustomization, f.RootFile = root.GetName(), file
	} else if sync.Source == systemName && sync.Namespace == systemName {
		return false
	} else {
		sync.Kustomization, f.RootInvented = sync.Source, true
		*root = newObject("kustomize.toolkit.fluxcd.io/v1", kustomizationKind, sync.Namespace, sync.Source, map[string]any{
			"interval": "10m0s", "path": "./" + f.Path, "prune": true, "sourceRef": map[string]any{"kind": sync.Kind, "name": sync.Source},
		})
	}
	branch := "branch"
	if sync.Kind == ociRepository {
		branch = "tag"
	}
	spec := map[string]any{"interval": "1m0s", "url": sync.URL, "ref": map[string]any{branch: sync.Branch}}
	if sync.SecretRef != "" {
		spec["secretRef"] = map[string]any{"name": sync.SecretRef}
	}
	for _, namespace := range slices.Compact([]string{sync.Namespace, root.GetNamespace()}) {
		if namespace != systemName { // Flux's manifests have that one
			f.Roots = append(f.Roots, unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}})
		}
	}
	f.Roots = append(f.Roots, newObject("source.toolkit.fluxcd.io/v1", sync.Kind, sync.Namespace, sync.Source, spec), *root)
	return true
}

// outsideRoot returns the Kustomization in the cluster's folder that applies this folder from a source that
// is not in the repository, or else one that applies another folder of the repository from such a
// source, with its file. If one of those names the source that a bootstrap makes, it returns that one.
func (f *Fleet) outsideRoot(kind string) (root *unstructured.Unstructured, file string) {
	var all []placed
	eachManifest(os.DirFS(f.Dir), ".", func(name string, content []byte) bool {
		if objects, err := parse(content); err == nil && mentioned.Match(content) {
			for _, u := range objects {
				all = append(all, placed{name, u})
			}
		}
		return true
	})
	for _, p := range all {
		ref, _, _ := unstructured.NestedStringMap(p.object.Object, "spec", "sourceRef")
		folder, outside := outsideSource(f.Dir, p, all)
		if !outside || !inside(p.file, f.Path) || ref["kind"] != kind || strings.Contains(ref["name"]+ref["namespace"], "$") {
			continue
		}
		if folder == f.Path {
			return p.object.DeepCopy(), p.file
		}
		if root == nil || ref["name"] == systemName {
			root, file = p.object.DeepCopy(), p.file
		}
	}
	return root, file
}

// Resolve sets the address and the branch or tag of the root source, in which a manifest may have
// variables that the root Kustomization resolves when it applies its own source.
func (s Sync) Resolve(source *unstructured.Unstructured) {
	if source.GetKind() != s.Kind || source.GetName() != s.Source || source.GetNamespace() != s.Namespace {
		return
	}
	for _, field := range [][]string{{"spec", "url"}, {"spec", "ref", "branch"}, {"spec", "ref", "tag"}} {
		text, found, _ := unstructured.NestedString(source.Object, field...)
		value := s.Branch
		if field[len(field)-1] == "url" {
			value = s.URL
		}
		if found && variable.MatchString(text) {
			_ = unstructured.SetNestedField(source.Object, value, field...) // the field exists
		}
	}
}

// syncManifest returns the content that `flux bootstrap` would write to gotk-sync.yaml.
func syncManifest(s Sync, clusterPath string) []byte {
	ref, secret := "branch", ""
	if s.Kind == ociRepository {
		ref = "tag"
	}
	if s.SecretRef != "" {
		secret = "  secretRef:\n    name: " + s.SecretRef + "\n"
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
%[8]s  url: %[4]s
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
`, s.Source, s.Namespace, s.Branch, s.URL, clusterPath, s.Kind, ref, secret)
}

// kustomizationFile returns the path of a folder's kustomization file, or the path for a new one.
func (f *Fleet) kustomizationFile(folder string) string {
	if name, _, err := flux.KustomizationFile(os.DirFS(f.Dir), folder); err == nil {
		return name
	}
	return path.Join(folder, flux.KustomizationFiles()[0])
}

// completeKustomization adds the files of the overlay to the kustomization of the system
// folder, and creates the kustomization if it is missing.
func (f *Fleet) completeKustomization() error {
	if len(f.Overlay) == 0 {
		return nil
	}
	name := f.kustomizationFile(f.declared)
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

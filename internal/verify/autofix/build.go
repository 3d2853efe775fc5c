package autofix

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// root is a folder that Flux applies.
type root struct {
	path string
	// namespace is the target namespace of the Kustomization that applies the folder.
	namespace string
}

// built holds the objects of each root. It omits roots that do not build.
type built map[root][]*unstructured.Unstructured

// find returns all objects that match.
func (b built) find(match func(*unstructured.Unstructured) bool) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, objects := range b {
		for _, o := range objects {
			if match(o) {
				all = append(all, o)
			}
		}
	}
	return all
}

// named returns the objects of a kind with a name, in a namespace.
func (b built) named(kind, namespace, name string) []*unstructured.Unstructured {
	return b.find(func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetNamespace() == namespace && o.GetName() == name
	})
}

// workbench builds a fleet in a copy of its folder.
type workbench struct {
	fleet *layout.Fleet
	dir   string
	// edited are the files of the copy that differ from the files of the fleet.
	edited []string
	// known caches results, by the root and the diff of its files.
	known map[string]result
	// clusters are the fleet's other clusters; nil until they are read.
	clusters []cluster
}

// result is the build of a root.
type result struct {
	objects []*unstructured.Unstructured
	ok      bool
}

func newWorkbench(f *layout.Fleet) *workbench {
	return &workbench{fleet: f, known: map[string]result{}}
}

func (w *workbench) close() error {
	if w.dir == "" {
		return nil
	}
	return os.RemoveAll(w.dir)
}

// build returns the objects that Flux would apply from an edited fleet. It returns an error
// if the folder cannot be copied.
func (w *workbench) build(t *tree) (built, error) {
	all := built{}
	prepared := false
	for r, files := range t.roots {
		key := r.path + " " + r.namespace + "\n" + t.diff(func(name string) bool {
			_, old := t.before[name]
			return !old || files[name]
		})
		if _, ok := w.known[key]; !ok {
			if !prepared {
				if err := w.prepare(t); err != nil {
					return nil, fmt.Errorf("cannot try a patch: %w", err)
				}
				prepared = true
			}
			objects, err := flux.BuildFolder(w.dir, w.file(r.path), r.namespace)
			w.known[key] = result{objects, err == nil}
		}
		if known := w.known[key]; known.ok {
			all[r] = known.objects
		}
	}
	return all, nil
}

// prepare creates the copy, and writes the edited files into it.
func (w *workbench) prepare(t *tree) error {
	if w.dir == "" {
		if err := w.copy(); err != nil {
			return err
		}
	}
	for _, name := range w.edited {
		before, old := t.before[name]
		if !old {
			if err := os.Remove(w.file(name)); err != nil {
				return err
			}
		} else if err := os.WriteFile(w.file(name), []byte(before), 0o600); err != nil {
			return err
		}
	}
	w.edited = nil
	for name, content := range t.now {
		if before, old := t.before[name]; old && before == content {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(w.file(name)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(w.file(name), []byte(content), 0o600); err != nil {
			return err
		}
		w.edited = append(w.edited, name)
	}
	return nil
}

func (w *workbench) file(name string) string { return filepath.Join(w.dir, filepath.FromSlash(name)) }

// copy copies the fleet with the overlay's manifests. It omits links, which Flux's artifacts do
// not contain either, and the overlay's kustomization file, because a patch is for the fleet's
// own file.
func (w *workbench) copy() error {
	dir, err := os.MkdirTemp("", "tenure-patch-")
	if err != nil {
		return err
	}
	w.dir = dir
	set, err := workspace.Open(w.fleet.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = set.Close() }()
	if err := set.CopyTo(dir); err != nil {
		return err
	}
	for name, content := range w.fleet.Overlay {
		if flux.IsKustomizationFile(name) || !listed(set.FS(), name) {
			continue
		}
		if err := os.WriteFile(w.file(name), content, 0o600); err != nil {
			return err
		}
	}
	return w.dropCRDs(path.Join(w.fleet.System, "gotk-components.yaml"))
}

// listed reports whether a fleet has a file, or lists it in the kustomization file of the same
// folder.
func listed(files fs.FS, name string) bool {
	if _, err := fs.Stat(files, name); err == nil {
		return true
	}
	_, content, err := flux.KustomizationFile(files, path.Dir(name))
	if err != nil {
		return false
	}
	s, err := yamledit.Parse(string(content))
	return err == nil && len(s.Docs) > 0 && s.Docs[0] != nil &&
		slices.ContainsFunc(yamledit.Strs(s.Docs[0], "resources"), func(r string) bool { return path.Clean(r) == path.Base(name) })
}

// dropCRDs removes Flux's CustomResourceDefinitions from the copy, unless a patch changes one.
// They take most of the time of a build.
func (w *workbench) dropCRDs(name string) error {
	content, err := os.ReadFile(w.file(name))
	if err != nil {
		return nil //nolint:nilerr // the fleet has no such file
	}
	crd := []byte("CustomResourceDefinition")
	files, err := filepath.Glob(filepath.Join(filepath.Dir(w.file(name)), "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if other, err := os.ReadFile(file); err == nil && file != w.file(name) && bytes.Contains(other, crd) {
			return nil
		}
	}
	var kept [][]byte
	for _, doc := range bytes.Split(content, []byte("\n---")) {
		if !bytes.Contains(doc, append([]byte("\nkind: "), crd...)) {
			kept = append(kept, doc)
		}
	}
	return os.WriteFile(w.file(name), bytes.Join(kept, []byte("\n---")), 0o600)
}

package lockdown

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// object is an object of the fleet as Flux would apply it.
type object struct {
	*unstructured.Unstructured
	// by is the Kustomization of Flux that applies it; nil for the root's own.
	by *object
	// system reports whether the object is in Flux's own manifests.
	system bool
}

func (o object) isFlux(kind string) bool {
	return o.GetKind() == kind && strings.Contains(o.GetAPIVersion(), ".toolkit.fluxcd.io/")
}

func (o object) text(fields ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, fields...)
	return s
}

func (o object) has(fields ...string) bool {
	_, found, _ := unstructured.NestedFieldNoCopy(o.Object, fields...)
	return found
}

func (o object) String() string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// survey holds the objects that the fleet delivers to the cluster.
type survey struct {
	objects []object
	// root is the root Kustomization.
	root *object
	// rootAccount is the account that the root names.
	rootAccount string
	// tenants are the names of tenants by their namespaces.
	tenants map[string]string
	// remote are the remote bases, with the files that name them.
	remote []string
}

type surveyor struct {
	dir    string
	fetch  flux.FetchBase
	remote []string
	source string
	seen   map[string]bool
	found  []object
}

// survey builds the fleet: Flux's manifests, and then the objects that each Kustomization of
// the platform's own source delivers, recursively.
func (t *tree) survey() (*survey, error) {
	dir, remove, err := t.disk()
	if err != nil {
		return nil, err
	}
	defer remove()
	w := surveyor{dir: dir, fetch: t.fleet.FetchBase, source: t.fleet.Sync.Source, seen: map[string]bool{t.fleet.System: true}}
	built, err := w.build(filepath.Join(dir, filepath.FromSlash(t.fleet.System)))
	if err != nil {
		return nil, fmt.Errorf("cannot build %s: %w", t.fleet.System, noPath(err, dir))
	}
	for _, o := range built {
		w.found = append(w.found, object{Unstructured: o, system: true})
	}
	if err := w.folder(t.fleet.Path, "", nil); err != nil {
		return nil, err
	}
	for i := 0; i < len(w.found); i++ {
		if err := w.follow(w.found[i], t.fleet.Path); err != nil {
			return nil, err
		}
	}
	s := &survey{objects: w.found, tenants: map[string]string{}, remote: w.remote}
	for i, o := range s.objects {
		if o.isFlux("Kustomization") && o.GetName() == t.fleet.Sync.Kustomization && o.GetNamespace() == t.fleet.Sync.Namespace && s.root == nil {
			s.root, s.rootAccount = &s.objects[i], o.text("spec", "serviceAccountName")
		}
		if o.GetKind() == "Namespace" {
			for _, label := range []string{v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant} {
				if tenant := o.GetLabels()[label]; tenant != "" && s.tenants[o.GetName()] == "" {
					s.tenants[o.GetName()] = tenant
				}
			}
		}
	}
	if s.root == nil {
		return nil, fmt.Errorf("cannot find the root Kustomization %s/%s in the objects that %s builds", t.fleet.Sync.Namespace, t.fleet.Sync.Kustomization, t.fleet.System)
	}
	return s, nil
}

// follow reads the objects that a Kustomization delivers.
func (w *surveyor) follow(o object, root string) error {
	at := path.Clean(strings.TrimPrefix(path.Join("/", o.text("spec", "path")), "/"))
	if at == "" {
		at = "."
	}
	if !o.isFlux("Kustomization") || o.text("spec", "sourceRef", "name") != w.source || at == root || w.seen[at+"/"] {
		return nil
	}
	w.seen[at+"/"] = true
	if _, err := os.Stat(filepath.Join(w.dir, filepath.FromSlash(at))); err != nil {
		return fmt.Errorf("cannot find %s, which %s applies: correct its spec.path", at, o)
	}
	return w.folder(at, o.text("spec", "targetNamespace"), &o)
}

// build builds the kustomization in a folder, with its remote bases.
func (w *surveyor) build(at string) ([]*unstructured.Unstructured, error) {
	if w.fetch != nil {
		err := flux.FetchBases(w.dir, at, func(base flux.RemoteBase, dir string) (string, error) {
			fetched, err := w.fetch(base, dir)
			if file, relErr := filepath.Rel(w.dir, base.File); fetched != "" && relErr == nil && !w.isFetched(base.File) {
				w.remote = append(w.remote, fmt.Sprintf("%s in %s", base.Address, filepath.ToSlash(file)))
			}
			return fetched, err
		})
		if err != nil {
			return nil, err
		}
	}
	return flux.Build(w.dir, at)
}

// isFetched reports whether a file is in a remote base.
func (w *surveyor) isFetched(file string) bool {
	return strings.HasPrefix(file, filepath.Join(w.dir, flux.FetchedBases)+string(filepath.Separator))
}

// folder reads a folder as Flux does: by its kustomization file, or, without one, all
// manifests in it.
func (w *surveyor) folder(name, namespace string, by *object) error {
	if w.seen[name] {
		return nil
	}
	w.seen[name] = true
	at := filepath.Join(w.dir, filepath.FromSlash(name))
	if _, _, err := flux.KustomizationFile(os.DirFS(at), "."); err == nil {
		built, err := w.build(at)
		if err != nil {
			return fmt.Errorf("cannot build %s: %w", name, noPath(err, w.dir))
		}
		w.add(built, namespace, by)
		return nil
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, noPath(err, w.dir))
	}
	for _, entry := range entries {
		switch ext := path.Ext(entry.Name()); {
		case entry.IsDir():
			err = w.folder(path.Join(name, entry.Name()), namespace, by)
		case ext == ".yaml" || ext == ".yml":
			err = w.file(path.Join(name, entry.Name()), namespace, by)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *surveyor) file(name, namespace string, by *object) error {
	content, err := fs.ReadFile(os.DirFS(w.dir), name)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, noPath(err, w.dir))
	}
	objects, err := flux.ReadObjects(content)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	w.add(objects, namespace, by)
	return nil
}

// add adds objects, without duplicates.
func (w *surveyor) add(objects []*unstructured.Unstructured, namespace string, by *object) {
	for _, o := range objects {
		if namespace != "" && o.GetKind() != "Namespace" {
			o.SetNamespace(namespace)
		}
		if !slices.ContainsFunc(w.found, func(f object) bool {
			return f.GroupVersionKind() == o.GroupVersionKind() && f.GetNamespace() == o.GetNamespace() && f.GetName() == o.GetName()
		}) {
			w.found = append(w.found, object{Unstructured: o, by: by})
		}
	}
}

// noPath removes the path of the temporary folder from a message.
func noPath(err error, dir string) error {
	return fmt.Errorf("%s", strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
}

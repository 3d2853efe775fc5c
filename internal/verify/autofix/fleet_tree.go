package autofix

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/flux"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// The limits on reading a fleet. A patch for a larger fleet would be a guess.
const (
	maxFiles = 5000
	maxSize  = 1 << 20 // bytes of a file
)

// tree holds the manifests of one cluster in a fleet's folder: the files that kustomization files
// and Flux Kustomizations of the platform's own source include, from the cluster's folder on.
type tree struct {
	fleet *layout.Fleet
	// before and now are the current and the planned files, by path in the folder.
	before, now map[string]string
	// namespace lists the namespaces into which kustomize puts the objects of a file, one for
	// each include of the file; "" keeps the objects' own namespaces.
	namespace map[string][]string
	// manifests are the paths of the files with objects, in the order in which load reached
	// them.
	manifests []string
	// reached is the number of manifests that the fleet has without edits. Edits add later ones.
	reached int
	// roots are the folders that Flux applies, with the files and folders that they include.
	roots map[root]map[string]bool
	bench *workbench
	// expects are the expectations of the current attempt's edits.
	expects []expectation
	// notes are remarks for the reader of the patch.
	notes []string
}

// load reads a fleet. It reads no file outside of the folder: it ignores files that are links,
// and confines folders that are links.
func load(f *layout.Fleet) (_ *tree, err error) {
	disk, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the fleet: %w", err)
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	l := loader{disk: disk, tree: &tree{fleet: f, before: map[string]string{}, namespace: map[string][]string{}, roots: map[root]map[string]bool{}, bench: newWorkbench(f)}, seen: map[string]bool{}}
	l.root(f.Path, "")
	if !l.tree.roots[root{f.Path, ""}][f.System] {
		l.root(f.System, "")
	}
	// The fleet may have no kustomization file that lists these manifests.
	l.file(path.Join(f.System, "gotk-sync.yaml"), "")
	for _, name := range flux.KustomizationFiles() {
		l.read(path.Join(f.System, name))
	}
	if len(l.tree.before) > maxFiles {
		return nil, fmt.Errorf("cannot read the fleet: it has more than %d files", maxFiles)
	}
	l.tree.now, l.tree.reached = maps.Clone(l.tree.before), len(l.tree.manifests)
	return l.tree, nil
}

// systemFile is the kustomization file of Flux's own manifests.
func (t *tree) systemFile() string { return t.kustomization(t.fleet.System) }

// kustomization returns the path of a folder's kustomization file, or the path for a new one.
func (t *tree) kustomization(folder string) string {
	for _, name := range flux.KustomizationFiles() {
		if _, ok := t.now[path.Join(folder, name)]; ok {
			return path.Join(folder, name)
		}
	}
	return path.Join(folder, flux.KustomizationFiles()[0])
}

type loader struct {
	disk *os.Root
	tree *tree
	seen map[string]bool
}

// read reads a file, once. It returns false for a missing file, a file that is too large, and a
// link.
func (l *loader) read(name string) (string, bool) {
	if content, ok := l.tree.before[name]; ok {
		return content, true
	}
	if len(l.tree.before) > maxFiles || !filepath.IsLocal(filepath.FromSlash(name)) || l.linked(path.Dir(name)) {
		return "", false
	}
	info, err := l.disk.Lstat(filepath.FromSlash(name))
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSize {
		return "", false
	}
	content, err := l.disk.ReadFile(filepath.FromSlash(name))
	if err != nil {
		return "", false
	}
	l.tree.before[name] = string(content)
	return string(content), true
}

// linked reports whether a folder, or one above it, is a link. Flux's artifacts have no
// links, and git applies no patch beyond one.
func (l *loader) linked(folder string) bool {
	for ; folder != "." && folder != "/"; folder = path.Dir(folder) {
		if info, err := l.disk.Lstat(filepath.FromSlash(folder)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// root follows a folder that Flux applies.
func (l *loader) root(name, namespace string) {
	r := root{path.Clean(name), namespace}
	if _, ok := l.tree.roots[r]; ok {
		return
	}
	outer := l.seen
	l.seen = map[string]bool{}
	l.tree.roots[r] = l.seen
	l.folder(r.path, namespace)
	l.seen = outer
}

// first marks a file or folder of a root, and reports whether it was not reached before
// with the same namespace: overlays share a base.
func (l *loader) first(name, namespace string) bool {
	key := name + "\n" + namespace
	if l.seen[key] {
		return false
	}
	l.seen[name], l.seen[key] = true, true
	return true
}

// folder follows a folder as Flux does: its kustomization file, or everything in
// it.
func (l *loader) folder(name, namespace string) {
	name = path.Clean(name)
	if !filepath.IsLocal(filepath.FromSlash(name)) || l.linked(name) || !l.first(name, namespace) {
		return
	}
	for _, file := range flux.KustomizationFiles() {
		content, ok := l.read(path.Join(name, file))
		if !ok {
			continue
		}
		l.seen[path.Join(name, file)] = true
		s, err := yamledit.Parse(content)
		if err != nil || len(s.Docs) == 0 || s.Docs[0] == nil {
			return
		}
		if namespace == "" {
			namespace = yamledit.Str(s.Docs[0], "namespace")
		}
		for _, key := range []string{"resources", "bases", "components"} {
			for _, entry := range yamledit.Strs(s.Docs[0], key) {
				l.entry(path.Join(name, entry), namespace)
			}
		}
		return
	}
	entries, err := fs.ReadDir(l.disk.FS(), name)
	if err != nil {
		return
	}
	for _, entry := range entries {
		switch ext := path.Ext(entry.Name()); {
		case entry.IsDir() && entry.Name() != ".git":
			l.folder(path.Join(name, entry.Name()), namespace)
		case ext == ".yaml" || ext == ".yml":
			l.file(path.Join(name, entry.Name()), namespace)
		}
	}
}

func (l *loader) entry(name, namespace string) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return
	}
	if info, err := l.disk.Stat(filepath.FromSlash(name)); err == nil && info.IsDir() {
		l.folder(name, namespace)
		return
	}
	l.file(name, namespace)
}

// file adds a file of manifests, and follows Flux's Kustomizations in it.
func (l *loader) file(name, namespace string) {
	// Flux's components are large, and a patch must not edit them.
	if path.Base(name) == "gotk-components.yaml" || !l.first(name, namespace) {
		return
	}
	content, ok := l.read(name)
	if !ok {
		return
	}
	s, err := yamledit.Parse(content)
	if err != nil {
		return
	}
	if len(l.tree.namespace[name]) == 0 {
		l.tree.manifests = append(l.tree.manifests, name)
	}
	if !slices.Contains(l.tree.namespace[name], namespace) {
		l.tree.namespace[name] = append(l.tree.namespace[name], namespace)
	}
	for _, doc := range s.Docs {
		if isSync(doc) && yamledit.Str(doc, "spec", "sourceRef", "name") == l.tree.fleet.Sync.Source {
			l.root(cmp.Or(strings.TrimPrefix(path.Join("/", yamledit.Str(doc, "spec", "path")), "/"), "."), yamledit.Str(doc, "spec", "targetNamespace"))
		}
	}
}

// isSync reports whether a document is a Kustomization of Flux.
func isSync(doc *yaml.Node) bool {
	return doc != nil && yamledit.Str(doc, "kind") == "Kustomization" && strings.HasPrefix(yamledit.Str(doc, "apiVersion"), "kustomize.toolkit.fluxcd.io/")
}

// object is a document of the tree.
type object struct {
	file string
	doc  int
	node *yaml.Node
	// namespace is the object's namespace in the cluster. moved is true if a kustomization
	// file or Flux set it.
	namespace string
	moved     bool
}

func (o object) kind() string { return yamledit.Str(o.node, "kind") }
func (o object) name() string { return yamledit.Str(o.node, "metadata", "name") }

// objects returns all objects of the given kinds, with the edits so far.
func (t *tree) objects(kinds ...string) []object {
	var all []object
	for _, file := range t.manifests {
		s, err := yamledit.Parse(t.now[file])
		if err != nil {
			continue
		}
		for i, doc := range s.Docs {
			if doc == nil || !slices.Contains(kinds, yamledit.Str(doc, "kind")) {
				continue
			}
			for _, namespace := range t.namespace[file] {
				o := object{file: file, doc: i, node: doc, namespace: namespace, moved: namespace != ""}
				if !o.moved {
					o.namespace = yamledit.Str(doc, "metadata", "namespace")
				}
				all = append(all, o)
			}
		}
	}
	return all
}

// edit changes a file, or returns false if it cannot edit the file's style.
func (t *tree) edit(file string, change func(*yamledit.Stream) error) bool {
	s, err := yamledit.Parse(t.now[file])
	if err != nil || change(s) != nil {
		return false
	}
	t.now[file] = s.Text
	return true
}

// untouched returns the fleet without edits, for another patch.
func (t *tree) untouched() *tree {
	return &tree{
		fleet: t.fleet, before: t.before, now: maps.Clone(t.before), namespace: maps.Clone(t.namespace),
		manifests: slices.Clone(t.manifests[:t.reached]), reached: t.reached, roots: t.roots, bench: t.bench,
	}
}

// exists reports whether a path exists, as a file, a folder or a link.
func (t *tree) exists(name string) bool {
	if _, ok := t.now[name]; ok {
		return true
	}
	root, err := os.OpenRoot(t.fleet.Dir)
	if err != nil {
		return true
	}
	defer func() { _ = root.Close() }()
	_, err = root.Lstat(filepath.FromSlash(name))
	return err == nil || !errors.Is(err, fs.ErrNotExist)
}

// patch returns the diff, after lines with notes for the reader. Tools ignore text before a
// diff.
func (t *tree) patch() string {
	diff := t.diff(func(string) bool { return true })
	if diff == "" {
		return ""
	}
	return strings.Join(t.notes, "") + t.sharing() + diff
}

// diff returns the changes of the selected files as a unified diff, relative to the fleet's
// folder.
func (t *tree) diff(of func(name string) bool) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.now)) {
		before, old := t.before[name]
		if old && before == t.now[name] || !of(name) {
			continue
		}
		var was []byte
		if old {
			was = []byte(before) // not nil, also for an empty file
		}
		b.WriteString(workspace.Unified(name, was, []byte(t.now[name])))
	}
	return b.String()
}

package remedy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/change"
	"github.com/tenure-dev/tenure/internal/fleet"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// What is read of a fleet at most: beyond it, a patch would be a guess.
const (
	maxFiles = 5000
	maxSize  = 1 << 20 // bytes of a file
)

// tree is what a fleet's folder says about one cluster: the manifests that are
// reached from the cluster's folder by kustomization files and by Flux's
// Kustomizations of the platform's own source.
type tree struct {
	fleet *fleet.Fleet
	// before and now are files by path in the folder, as they are and as they
	// are meant to be.
	before, now map[string]string
	// namespace is what kustomize puts the objects of a file into, "" for what
	// they say themselves.
	namespace map[string]string
	// manifests are the paths of the files with objects, in the order in which
	// they were reached.
	manifests []string
	// reached is how many of them the fleet has: the others are new.
	reached int
}

// load reads a fleet. Nothing outside of its folder is: not through a link
// either, since files that are links are left out and folders that are links are
// confined.
func load(f *fleet.Fleet) (_ *tree, err error) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the fleet: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	l := loader{root: root, tree: &tree{fleet: f, before: map[string]string{}, namespace: map[string]string{}}, seen: map[string]bool{}}
	l.folder(f.Path, "")
	// Also what no kustomization file names: a fleet may have none yet.
	l.file(path.Join(f.System, "gotk-sync.yaml"), "")
	l.read(l.tree.systemFile())
	if len(l.tree.before) > maxFiles {
		return nil, fmt.Errorf("cannot read the fleet: it has more than %d files", maxFiles)
	}
	l.tree.now, l.tree.reached = maps.Clone(l.tree.before), len(l.tree.manifests)
	return l.tree, nil
}

// systemFile is the kustomization file of Flux's own manifests.
func (t *tree) systemFile() string { return path.Join(t.fleet.System, "kustomization.yaml") }

type loader struct {
	root *os.Root
	tree *tree
	seen map[string]bool
}

// read reads a file, once. What is not there, too large, or no file of the
// folder's own is left out.
func (l *loader) read(name string) (string, bool) {
	if content, ok := l.tree.before[name]; ok {
		return content, true
	}
	if len(l.tree.before) > maxFiles || !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", false
	}
	info, err := l.root.Lstat(filepath.FromSlash(name))
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSize {
		return "", false
	}
	content, err := l.root.ReadFile(filepath.FromSlash(name))
	if err != nil {
		return "", false
	}
	l.tree.before[name] = string(content)
	return string(content), true
}

// folder follows a folder as Flux does: its kustomization file, or everything in
// it.
func (l *loader) folder(name, namespace string) {
	name = path.Clean(name)
	if l.seen[name+"/"] || !filepath.IsLocal(filepath.FromSlash(name)) {
		return
	}
	l.seen[name+"/"] = true
	for _, file := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		content, ok := l.read(path.Join(name, file))
		if !ok {
			continue
		}
		s, err := parse(content)
		if err != nil || len(s.docs) == 0 || s.docs[0] == nil {
			return
		}
		if namespace == "" {
			namespace = str(s.docs[0], "namespace")
		}
		for _, key := range []string{"resources", "bases", "components"} {
			for _, entry := range strs(s.docs[0], key) {
				l.entry(path.Join(name, entry), namespace)
			}
		}
		return
	}
	entries, err := fs.ReadDir(l.root.FS(), name)
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
	if info, err := l.root.Stat(filepath.FromSlash(name)); err == nil && info.IsDir() {
		l.folder(name, namespace)
		return
	}
	l.file(name, namespace)
}

// file takes a file of manifests, and follows Flux's Kustomizations in it.
func (l *loader) file(name, namespace string) {
	// Flux's components are large, and not for anybody to edit.
	if l.seen[name] || path.Base(name) == "gotk-components.yaml" {
		return
	}
	l.seen[name] = true
	content, ok := l.read(name)
	if !ok {
		return
	}
	s, err := parse(content)
	if err != nil {
		return
	}
	l.tree.manifests = append(l.tree.manifests, name)
	l.tree.namespace[name] = namespace
	for _, doc := range s.docs {
		if isSync(doc) && str(doc, "spec", "sourceRef", "name") == l.tree.fleet.Sync.Source {
			l.folder(strings.TrimPrefix(path.Join("/", str(doc, "spec", "path")), "/"), str(doc, "spec", "targetNamespace"))
		}
	}
}

// isSync says whether a document is a Kustomization of Flux.
func isSync(doc *yaml.Node) bool {
	return doc != nil && str(doc, "kind") == "Kustomization" && strings.HasPrefix(str(doc, "apiVersion"), "kustomize.toolkit.fluxcd.io/")
}

// object is a document of the tree.
type object struct {
	file string
	doc  int
	node *yaml.Node
	// namespace is where the object is in the cluster.
	namespace string
}

func (o object) kind() string { return str(o.node, "kind") }
func (o object) name() string { return str(o.node, "metadata", "name") }

// objects are all objects of the given kinds, as they are meant to be.
func (t *tree) objects(kinds ...string) []object {
	var all []object
	for _, file := range t.manifests {
		s, err := parse(t.now[file])
		if err != nil {
			continue
		}
		for i, doc := range s.docs {
			if doc == nil || !slices.Contains(kinds, str(doc, "kind")) {
				continue
			}
			o := object{file: file, doc: i, node: doc, namespace: t.namespace[file]}
			if o.namespace == "" {
				o.namespace = str(doc, "metadata", "namespace")
			}
			all = append(all, o)
		}
	}
	return all
}

// edit changes a file. One that is written in a way that cannot be edited stays
// as it is.
func (t *tree) edit(file string, change func(*stream) error) bool {
	s, err := parse(t.now[file])
	if err != nil || change(s) != nil {
		return false
	}
	t.now[file] = s.text
	return true
}

// untouched is the fleet as it is, for another patch.
func (t *tree) untouched() *tree {
	return &tree{fleet: t.fleet, before: t.before, now: maps.Clone(t.before), namespace: maps.Clone(t.namespace), manifests: slices.Clone(t.manifests[:t.reached])}
}

// exists says whether a path is taken, by whatever it is.
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

// diff writes what has changed as a unified diff, relative to the fleet's folder.
func (t *tree) diff() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.now)) {
		before, old := t.before[name]
		if before == t.now[name] {
			continue
		}
		// Such a name would need quotes that not every tool reads.
		if strings.ContainsAny(name, "\t\n\r\"\\ ") {
			continue
		}
		var was []byte
		if old {
			was = []byte(before) // not nil, also for an empty file
		}
		b.WriteString(change.Unified(name, was, []byte(t.now[name])))
	}
	return b.String()
}

package lockdown

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

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"sigs.k8s.io/yaml"
)

// The limits on reading a fleet.
const (
	maxFiles = 5000
	maxSize  = 8 << 20 // bytes of a file: Flux's manifests have half a megabyte
)

// tree is the current and the planned state of a fleet's folder. It neither reads nor writes
// through symbolic links.
type tree struct {
	fleet       *layout.Fleet
	root        *os.Root
	before, now map[string]string
}

func open(f *layout.Fleet) (_ *tree, err error) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the fleet: %w", err)
	}
	t := &tree{fleet: f, root: root, before: map[string]string{}}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		case len(t.before) == maxFiles:
			return fmt.Errorf("it has more than %d files: is it the platform's repository?", maxFiles)
		}
		info, err := entry.Info()
		if err != nil || info.Size() > maxSize {
			return err
		}
		content, err := root.ReadFile(name)
		t.before[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read the fleet: %w", err), root.Close())
	}
	t.now = maps.Clone(t.before)
	return t, nil
}

func (t *tree) close() { _ = t.root.Close() }

// system returns the path of a file beside Flux's manifests.
func (t *tree) system(name string) string { return path.Join(t.fleet.System, name) }

// component returns the path of a file of the component.
func (t *tree) component(name string) string { return path.Join(t.fleet.System, Own, name) }

// checkOwn returns an error if a file of the lockdown exists that the lockdown did not write, or
// is a link.
func (t *tree) checkOwn() error {
	file := t.system("kustomization.yaml")
	if _, ok := t.now[file]; !ok {
		return fmt.Errorf("cannot find %s: Flux's manifests need a kustomization file with this name, as `flux bootstrap` writes it, and no link", file)
	}
	for _, dir := range []string{path.Dir(t.component("x")), Infrastructure, managerDir, warnDir} {
		for name := dir; name != "."; name = path.Dir(name) {
			info, err := t.root.Lstat(filepath.FromSlash(name))
			if err == nil && !info.IsDir() {
				return fmt.Errorf("cannot write to %s: %s is in the way and is no folder: move it", dir, name)
			}
		}
		if _, err := t.root.Lstat(filepath.FromSlash(dir)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		content, ok := t.now[path.Join(dir, "kustomization.yaml")]
		if !ok || !strings.Contains(content, marker) {
			return fmt.Errorf("cannot write to %s: it is there already and was not written by `tenure profile`: move it", dir)
		}
	}
	return nil
}

// rememberedAccount returns the root's account before the lockdown, which the component records.
func (t *tree) rememberedAccount() string {
	var component struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	// If the component does not parse, there is no earlier account; the lockdown writes it again.
	_ = yaml.Unmarshal([]byte(t.before[t.component("kustomization.yaml")]), &component)
	return component.Metadata.Annotations["tenure.dev/root-account"]
}

// dropComponent removes the component from the build.
func (t *tree) dropComponent() {
	maps.DeleteFunc(t.now, func(name, _ string) bool { return t.inComponent(name) })
}

// others returns the other clusters of the fleet that are locked down.
func (t *tree) others() []string {
	var found []string
	for name, content := range t.now {
		dir := path.Dir(name)
		if path.Base(name) == "kustomization.yaml" && path.Base(dir) == Own && dir != Infrastructure &&
			dir != path.Dir(t.component("x")) && strings.Contains(content, marker) {
			found = append(found, path.Dir(dir))
		}
	}
	slices.Sort(found)
	return found
}

// changes returns the changed files, sorted by path.
func (t *tree) changes() []Change {
	names := maps.Clone(t.before)
	maps.Copy(names, t.now)
	var all []Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, was := t.before[name]
		after, is := t.now[name]
		if was == is && before == after {
			continue
		}
		c := Change{Path: name}
		if was {
			c.Before = &before
		}
		if is {
			c.After = &after
		}
		all = append(all, c)
	}
	return all
}

// Diff returns the plan as a unified diff for `git apply` in the fleet's folder.
func (p *Plan) Diff() string {
	var b strings.Builder
	for _, c := range p.Changes {
		b.WriteString(workspace.Unified(c.Path, content(c.Before), content(c.After)))
	}
	return b.String()
}

func content(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text) // not nil, also for an empty file
}

// Write changes all files of the fleet, or none if one no longer has the content that the plan
// is based on. It never writes outside of the folder, not even through links. It returns an
// error if it wrote nothing, or, joined to that, if the folder cannot be closed.
func (p *Plan) Write(dir string) (err error) {
	set, err := workspace.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot write to the fleet: %w", err)
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	for _, c := range p.Changes {
		if err := plan(set, c); err != nil {
			return fmt.Errorf("cannot write to the fleet: %w", err)
		}
	}
	if err := set.Apply(); err != nil {
		return fmt.Errorf("cannot write to the fleet: %w", err)
	}
	return nil
}

// plan adds one change to a set, unless the file has changed since.
func plan(set *workspace.Set, c Change) error {
	now, err := set.Read(c.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c.Before == nil && now != nil || c.Before != nil && string(now) != *c.Before {
		return fmt.Errorf("cannot write %s: it %w", c.Path, workspace.ErrChanged)
	}
	if c.After == nil {
		return set.Remove(c.Path)
	}
	return set.Write(c.Path, []byte(*c.After))
}

// disk writes the tree to a temporary folder, for builds that need one.
func (t *tree) disk() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "tenure-profile-"); err != nil {
		return "", nil, fmt.Errorf("cannot build the fleet: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	all := maps.Clone(t.now)
	for name, content := range t.fleet.Overlay {
		// Only the kustomization file is edited.
		if _, edited := all[name]; !edited || path.Base(name) != "kustomization.yaml" {
			all[name] = string(content)
		}
	}
	if err := fill(dir, all); err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

// fill writes files into a temporary folder, to which no other program writes.
func fill(dir string, files map[string]string) error {
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return fmt.Errorf("cannot build the fleet: %w", err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return fmt.Errorf("cannot build the fleet: %w", err)
		}
	}
	return nil
}

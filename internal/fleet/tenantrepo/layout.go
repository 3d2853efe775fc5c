package tenantrepo

import (
	"bytes"
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
	"time"

	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"sigs.k8s.io/yaml"
)

const (
	kustomizationFile = "kustomization.yaml"
	fluxGroup         = "kustomize.toolkit.fluxcd.io/"
	systemNamespace   = "flux-system"
	// maxFile bounds the files that are read: Flux's own manifests have less
	// than 1 MiB.
	maxFile = 4 << 20
)

// layout describes the folders of the tenants in a fleet.
type layout struct {
	base     string // the folder of the tenants' folders
	overlays []overlay
}

// overlay is the folder of an environment's tenants.
type overlay struct {
	Environment
	dir  string
	sync *sync // nil if TenantsDir names the folder and no Kustomization applies it
	// own reports whether the tenant gets its own Flux Kustomization here.
	own bool
}

// findLayout finds the folders of the environments. With tenantsDir they are its children;
// otherwise they are the folders that the clusters' Kustomizations apply.
func findLayout(s *workspace.Set, tenantsDir string, environments []Environment) (layout, error) {
	syncs, err := findSyncs(s.FS())
	if err != nil {
		return layout{}, err
	}
	var l layout
	for _, env := range environments {
		o := overlay{Environment: env}
		switch {
		case tenantsDir != "":
			o.dir = path.Join(tenantsDir, env.Name)
			if !fs.ValidPath(o.dir) {
				return layout{}, fmt.Errorf("the folder %q %w: it is not inside the fleet", tenantsDir, ErrInvalid)
			}
			o.sync = applying(syncs, o.dir)
			if err := checkEnvironment(s, syncs, tenantsDir, o); err != nil {
				return layout{}, err
			}
		default:
			if o.sync, err = chooseSync(s, syncs, env.Name); err != nil {
				return layout{}, err
			}
			o.dir = o.sync.path
			if err := checkTop(s, *o.sync); err != nil {
				return layout{}, err
			}
		}
		if i := slices.IndexFunc(l.overlays, func(other overlay) bool { return other.dir == o.dir }); i >= 0 {
			return layout{}, fmt.Errorf("%w: the environments %s and %s have the same folder %s", ErrLayout, l.overlays[i].Name, env.Name, o.dir)
		}
		l.overlays = append(l.overlays, o)
	}
	if l.base, err = findBase(s, tenantsDir, l.overlays, syncs); err != nil {
		return layout{}, err
	}
	return l, nil
}

// checkEnvironment returns an error for an environment that is neither a folder of tenantsDir nor applied
// by a Kustomization, if tenantsDir has others.
func checkEnvironment(s *workspace.Set, syncs []sync, tenantsDir string, o overlay) error {
	if o.sync != nil || isFolder(s, o.dir) {
		return nil
	}
	others := map[string]bool{}
	entries, err := fs.ReadDir(s.FS(), path.Clean(tenantsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read the fleet: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != baseFolder {
			others[e.Name()] = true
		}
	}
	for _, k := range syncs {
		if path.Dir(k.path) == path.Clean(tenantsDir) {
			others[path.Base(k.path)] = true
		}
	}
	if len(others) == 0 {
		return nil // the first environment
	}
	return fmt.Errorf("%w: there is no environment %s: %s does not exist, and no Flux Kustomization applies it; the environments in %s: %s; for a new one, make the folder first",
		ErrLayout, o.Name, o.dir, path.Clean(tenantsDir), strings.Join(sortedKeys(others), ", "))
}

// checkTop returns an error if the fleet's folder is above or below the top of the repository, from which
// Flux reads the path of a Kustomization.
func checkTop(s *workspace.Set, k sync) error {
	if isFolder(s, k.path) {
		return nil
	}
	for top := path.Dir(k.file); top != "."; top = path.Dir(top) {
		if isFolder(s, path.Join(top, k.path)) {
			return fmt.Errorf("%w: %s applies ./%s, which is in %s: name the top folder of the repository with --fleet %s", ErrLayout, k.file, k.path, top, filepath.Join(s.Dir(), filepath.FromSlash(top)))
		}
	}
	dir, err := filepath.Abs(s.Dir())
	if err != nil {
		return fmt.Errorf("cannot read the fleet: %w", err)
	}
	for !exists(filepath.Join(dir, ".git")) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		if exists(filepath.Join(dir, filepath.FromSlash(k.path))) {
			return fmt.Errorf("%w: %s applies ./%s, which is in %s: name the top folder of the repository with --fleet %s", ErrLayout, k.file, k.path, dir, dir)
		}
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func isFolder(s *workspace.Set, name string) bool {
	info, err := fs.Stat(s.FS(), name)
	return err == nil && info.IsDir()
}

// tenantsWord is the word in the name or the path of a Kustomization that applies the tenants.
const tenantsWord = "tenants"

// baseFolder is the name of the folder that holds the tenants' folders, beside the environments.
const baseFolder = "base"

// chooseSync finds the Kustomization that applies an environment's tenants: it
// has to do with tenants, and with the environment, by its path or its file.
func chooseSync(s *workspace.Set, syncs []sync, env string) (*sync, error) {
	var found, elsewhere []sync
	for _, k := range syncs {
		if k.tenant() != "" || k.name != tenantsWord && !slices.Contains(strings.Split(k.path, "/"), tenantsWord) {
			continue
		}
		if slices.Contains(strings.Split(k.path, "/"), env) || slices.Contains(strings.Split(path.Dir(k.file), "/"), env) {
			found = append(found, k)
			continue
		}
		elsewhere = append(elsewhere, k)
	}
	if len(found) > 1 {
		exact := slices.DeleteFunc(slices.Clone(found), func(k sync) bool { return path.Base(k.path) != env })
		if len(exact) == 1 {
			found = exact
		}
	}
	const wayOut = "name the folder that holds the environments with --tenants DIR"
	switch {
	case len(found) == 1:
		return &found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("%w: several Flux Kustomizations apply tenants of %s: %s; %s", ErrLayout, env, describe(found), wayOut)
	case len(elsewhere) > 0:
		return nil, fmt.Errorf("%w: no Flux Kustomization applies the tenants of %s, only %s; %s, or add one", ErrLayout, env, describe(elsewhere), wayOut)
	}
	addOne := "add one"
	if isFolder(s, "clusters/"+env) {
		addOne = fmt.Sprintf("add one, as `tenure create fleet %s --git-url URL --cluster %s` does, which keeps existing files", s.Dir(), env)
	}
	return nil, fmt.Errorf("%w: there is no Flux Kustomization named tenants, or with a path like ./tenants/%s, in any file such as clusters/%s/tenants.yaml; %s, or %s",
		ErrLayout, env, env, addOne, wayOut)
}

func describe(syncs []sync) string {
	var words []string
	for _, k := range syncs {
		words = append(words, fmt.Sprintf("%s in %s (path ./%s)", k.name, k.file, k.path))
	}
	return strings.Join(words, ", ")
}

func applying(syncs []sync, dir string) *sync {
	for i := range syncs {
		if syncs[i].path == dir {
			return &syncs[i]
		}
	}
	return nil
}

// findBase returns the folder of the tenants' folders: the folder that the overlays include,
// or the folder base beside the overlays.
func findBase(s *workspace.Set, tenantsDir string, overlays []overlay, syncs []sync) (string, error) {
	if tenantsDir != "" {
		return path.Join(tenantsDir, baseFolder), nil
	}
	parents := map[string]bool{}
	for _, o := range overlays {
		dirs := resourceDirs(s, o.dir)
		for _, k := range syncs {
			if k.tenant() != "" && path.Dir(k.path) == o.dir {
				dirs = append(dirs, resourceDirs(s, k.path)...)
			}
		}
		for _, dir := range dirs {
			parents[path.Dir(dir)] = true
		}
	}
	if len(parents) == 0 {
		for _, o := range overlays {
			parents[path.Join(path.Dir(o.dir), baseFolder)] = true
		}
	}
	found := slices.Sorted(maps.Keys(parents))
	if len(found) > 1 {
		named := slices.DeleteFunc(slices.Clone(found), func(dir string) bool { return path.Base(dir) != baseFolder })
		if len(named) == 1 {
			found = named
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%w: the tenants come from several folders: %s; name the folder that holds base and the environments with --tenants DIR",
			ErrLayout, strings.Join(found, ", "))
	}
	return found[0], nil
}

// resourceDirs returns the folders that a kustomization includes, and none if it cannot be parsed:
// the later edit returns that error.
func resourceDirs(s *workspace.Set, dir string) []string {
	raw, err := s.Read(path.Join(dir, kustomizationFile))
	if err != nil {
		return nil
	}
	content, err := yamledit.Decode(raw)
	if err != nil {
		return nil
	}
	var dirs []string
	for _, entry := range list(content["resources"]) {
		target := path.Join(dir, entry)
		if fs.ValidPath(target) && s.Exists(path.Join(target, kustomizationFile)) {
			dirs = append(dirs, target)
		}
	}
	return dirs
}

// findSyncs returns the platform's Flux Kustomizations anywhere in the fleet. The
// Kustomizations of tenants are in the tenants' namespaces, or in patches for these.
func findSyncs(fleet fs.FS) ([]sync, error) {
	var syncs []sync
	err := eachFile(fleet, ".", func(name string, content []byte) error {
		syncs = append(syncs, syncsIn(name, content)...)
		return nil
	})
	return syncs, err
}

// syncsIn reads the platform's Flux Kustomizations in a file.
func syncsIn(name string, content []byte) []sync {
	if !bytes.Contains(content, []byte(fluxGroup)) {
		return nil
	}
	var syncs []sync
	for _, doc := range documents(content) {
		var k struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
			Spec             map[string]any
		}
		// Skip files that are not Kubernetes objects, such as values files or templates.
		if yaml.Unmarshal(doc, &k) != nil || k.Kind != "Kustomization" || !strings.HasPrefix(k.APIVersion, fluxGroup) ||
			cmp.Or(k.Metadata.Namespace, systemNamespace) != systemNamespace {
			continue
		}
		folder, _ := k.Spec["path"].(string)
		if dir := path.Clean(strings.TrimPrefix(folder, "/")); folder != "" && fs.ValidPath(dir) {
			syncs = append(syncs, sync{name, k.Metadata.Name, dir, k.Spec})
		}
	}
	return syncs
}

// eachFile calls a function for every YAML file below a folder, except in hidden folders. It
// calls none if the folder does not exist. It returns the error of the function as it is.
func eachFile(fleet fs.FS, dir string, do func(name string, content []byte) error) error {
	var failed error
	err := fs.WalkDir(fleet, dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name == dir:
			return fs.SkipAll
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !d.Type().IsRegular() || (path.Ext(name) != ".yaml" && path.Ext(name) != ".yml"):
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > maxFile {
			return err
		}
		content, err := fs.ReadFile(fleet, name)
		if err != nil {
			return err
		}
		failed = do(name, content)
		return failed
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("cannot read the fleet: %w", err)
	}
	return nil
}

// documents splits a YAML stream by its markers.
func documents(content []byte) [][]byte {
	var docs [][]byte
	start := 0
	for at, line := 0, 0; at < len(content); at = line {
		line = len(content)
		if i := bytes.IndexByte(content[at:], '\n'); i >= 0 {
			line = at + i + 1
		}
		if bytes.HasPrefix(content[at:], []byte("---")) {
			docs = append(docs, content[start:at])
			start = line
		}
	}
	return append(docs, content[start:])
}

// list returns the strings in a list.
func list(value any) []string {
	var found []string
	entries, _ := value.([]any)
	for _, e := range entries {
		if s, ok := e.(string); ok {
			found = append(found, s)
		}
	}
	return found
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// duration formats a duration without the trailing zero units of Go's format.
func duration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	return text
}

package tenantrepo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/flux"
)

// checkBuilds builds the folders that deliver the tenant, before and after the change. It
// returns an error if objects of others change, or if objects of the tenant are missing.
func (c *creation) checkBuilds() error {
	dirs, expected := c.buildDirs()
	return compareBuilds(c.Set, dirs, func(dir string, before, after map[string]string) error {
		wanted := map[string]bool{}
		for _, o := range expected[dir] {
			wanted[id(o.content)] = true
		}
		for name := range wanted {
			if _, ok := after[name]; !ok {
				return fmt.Errorf("%s does not come out of %s as it should: a namespace or a prefix in a kustomization.yaml above changes it", name, dir)
			}
		}
		return unchanged(dir, before, after, func(name string) bool { return wanted[name] })
	})
}

// unchanged refuses a change of anything but the tenant's objects. New ones may
// come: a component's, in the tenant's namespaces.
func unchanged(dir string, before, after map[string]string, mine func(string) bool) error {
	var others []string
	for name, content := range before {
		if !mine(name) && after[name] != content {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		return fmt.Errorf("it %w in %s: %s", ErrOthers, dir, strings.Join(others, ", "))
	}
	return nil
}

// compareBuilds builds folders before and after the change. A missing folder has no objects.
func compareBuilds(s *workspace.Set, dirs []string, compare func(dir string, before, after map[string]string) error) error {
	planned, err := os.MkdirTemp("", "tenure-fleet-")
	if err != nil {
		return fmt.Errorf("cannot try the change: %w", err)
	}
	defer func() { _ = os.RemoveAll(planned) }()
	if err := s.CopyTo(planned); err != nil {
		return err
	}
	for _, dir := range dirs {
		before, err := build(s.Dir(), dir)
		if err != nil {
			return fmt.Errorf("%w\nrepair it first, so that the command can check its change", err)
		}
		after, err := build(planned, dir)
		if err != nil {
			return err
		}
		if err := compare(dir, before, after); err != nil {
			return err
		}
	}
	return nil
}

// build returns the objects of a kustomization by their ids.
func build(root, dir string) (map[string]string, error) {
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(dir), kustomizationFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	objects, err := flux.Build(root, filepath.Join(root, filepath.FromSlash(dir)))
	if err != nil {
		return nil, fmt.Errorf("%s: %s", dir, strings.ReplaceAll(err.Error(), root+string(filepath.Separator), ""))
	}
	found := map[string]string{}
	for _, o := range objects {
		text, err := json.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("cannot build %s: %w", dir, err)
		}
		found[id(o.Object)] = string(text)
	}
	return found, nil
}

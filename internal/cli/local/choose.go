package local

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/ui"
)

// chooseFleet finds the cluster's folder if no flag names it. Without --fleet, the working
// directory counts if it is a fleet. It returns the notes about its choice.
func (f *Flags) chooseFleet() ([]string, error) {
	named := f.Cluster.Path != "" || len(f.Paths) > 0
	if named {
		f.Cluster.Fleet = cmp.Or(f.Cluster.Fleet, ".")
		for _, folder := range slices.Concat(f.Paths, []string{f.Cluster.Path}) {
			if folder == "" {
				continue
			}
			if err := checkNotAbove(f.Cluster.Fleet, folder); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	dir := cmp.Or(f.Cluster.Fleet, ".")
	found, err := layout.Look(dir)
	if err != nil {
		return nil, err
	}
	if len(found.Clusters) == 1 {
		only := found.Clusters[0]
		f.Cluster.Fleet = dir
		f.choosePaths([]string{only.Path})
		return []string{fmt.Sprintf("running --fleet %s --path %s: the %s in %s syncs this folder", dir, only.Path, only.Kind, only.File)}, nil
	}
	missing := "--fleet needs --path"
	if f.Cluster.Fleet == "" && f.several {
		missing = "verify needs --fleet and --path"
	}
	if len(found.Clusters) > 1 {
		return nil, ui.WithHint(fmt.Errorf("%s: %s has %d clusters", missing, dir, len(found.Clusters)), offer(dir, found)...)
	}
	wayOut, problem := found.Diagnose(dir)
	if f.Cluster.Fleet == "" {
		wayOut = cmp.Or(above("."), wayOut)
	}
	if f.Cluster.Fleet == "" && !f.several {
		return []string{fmt.Sprintf("running a bare Kubernetes without a fleet: %v; %s", problem, wayOut)}, nil
	}
	return nil, ui.WithHint(fmt.Errorf("%s: %w", missing, problem), wayOut)
}

// above returns the flags for the fleet whose repository a folder is in, or "".
func above(dir string) string {
	full, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	fleet, inside, found := fleetAbove(full)
	if len(found.Clusters) == 0 {
		return ""
	}
	fleet = filepath.Join(dir, fleet)
	for _, c := range found.Clusters {
		if len(found.Clusters) == 1 || strings.HasPrefix(filepath.ToSlash(inside)+"/", c.Path+"/") {
			return fmt.Sprintf("give --fleet %s --path %s", fleet, c.Path)
		}
	}
	return fmt.Sprintf("give --fleet %s and --path with one of %s", fleet, found.Paths())
}

// fleetAbove surveys the Git repository that a folder is in. fleet is the top of the repository, relative to the
// folder, and inside the folder, relative to the top. The survey is empty if the folder is the top itself, is in no
// repository, or the repository cannot be read.
func fleetAbove(dir string) (fleet, inside string, found layout.Survey) {
	top := dir
	for !isRepository(top) {
		if top == filepath.Dir(top) {
			return "", "", layout.Survey{}
		}
		top = filepath.Dir(top)
	}
	if top == dir {
		return "", "", layout.Survey{}
	}
	found, err := layout.Look(top)
	fleet, relErr := filepath.Rel(dir, top)
	inside, insideErr := filepath.Rel(top, dir)
	if errors.Join(err, relErr, insideErr) != nil {
		return "", "", layout.Survey{}
	}
	return fleet, inside, found
}

// CheckTop returns an error with a hint if a folder has no cluster, but the repository around it or one below it has:
// the paths of a fleet are relative to the top of its repository. It returns nil for a folder that cannot be read.
func CheckTop(dir string) error {
	found, err := layout.Look(dir)
	if err != nil || len(found.Clusters) > 0 {
		return nil // what uses the folder reports its errors
	}
	if len(found.Nested) > 0 {
		below := found.Nested[0].Fleet
		return ui.WithHint(fmt.Errorf("cannot read the fleet: %s is not the top of the platform's repository: its top is the folder %s", dir, below),
			"give --fleet "+filepath.Join(dir, filepath.FromSlash(below)))
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}
	top, inside, above := fleetAbove(full)
	if len(above.Clusters) == 0 {
		return nil
	}
	return ui.WithHint(fmt.Errorf("cannot read the fleet: %s is the folder %s of the platform's repository, and not its top", dir, filepath.ToSlash(inside)),
		"give --fleet "+filepath.Join(dir, top))
}

// isRepository reports whether a folder is the top of a Git repository.
func isRepository(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, ".git"))
	return err == nil
}

// offer returns the flags for each cluster.
func offer(dir string, found layout.Survey) []string {
	lines := []string{"choose one of these, or keep it in " + FileName + ":"}
	for _, c := range found.Clusters {
		lines = append(lines, fmt.Sprintf("--fleet %s --path %s (%s in %s)", dir, c.Path, c.Kind, c.File))
	}
	return lines
}

// choosePaths sets the clusters' folders, if a command runs several of them.
func (f *Flags) choosePaths(paths []string) {
	switch {
	case f.several:
		f.Paths = slices.Clone(paths)
	case len(paths) > 0:
		f.Cluster.Path = paths[0]
	}
}

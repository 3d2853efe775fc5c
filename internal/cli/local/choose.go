package local

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/ui"
)

// chooseFleet finds the cluster's folder if no flag names it. Without --fleet, the working
// directory counts if it is a fleet. It returns the notes about its choice.
func (f *Flags) chooseFleet() ([]string, error) {
	named := f.Cluster.Path != "" || len(f.Paths) > 0
	if named && f.Cluster.Fleet == "" {
		f.Cluster.Fleet = "."
		return nil, nil
	}
	if named {
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
	if f.Cluster.Fleet == "" && !f.several {
		if found.Flux == "" {
			return nil, nil // a bare cluster
		}
		return []string{fmt.Sprintf("running a bare Kubernetes without a fleet: %v; %s", problem, wayOut)}, nil
	}
	return nil, ui.WithHint(fmt.Errorf("%s: %w", missing, problem), wayOut)
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

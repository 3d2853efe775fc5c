package local

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	switch {
	case len(found.Clusters) == 1:
		only := found.Clusters[0]
		f.Cluster.Fleet = dir
		f.choosePaths([]string{only.Path})
		return []string{fmt.Sprintf("running --fleet %s --path %s: the %s in %s syncs this folder", dir, only.Path, only.Kind, only.File)}, nil
	case len(found.Clusters) > 1:
		return nil, ui.WithHint(fmt.Errorf("--fleet needs --path: %s has %d clusters", dir, len(found.Clusters)), f.offer(dir, found))
	case f.Cluster.Fleet == "" && !f.several && found.Flux == "":
		return nil, nil
	case f.Cluster.Fleet == "" && !f.several:
		return []string{fmt.Sprintf("running a bare Kubernetes without a fleet: %s", found.Diagnose(dir))}, nil
	case f.Cluster.Fleet == "" && f.several:
		return nil, ui.WithHint(errors.New("verify needs --fleet"), fmt.Sprintf("name the folder of the platform's repository: --fleet . --path clusters/staging; in the working directory, %s", found.Diagnose(dir)))
	}
	return nil, ui.WithHint(errors.New("--fleet needs --path"), fmt.Sprintf("name the cluster's folder in the fleet: --path clusters/staging; %s", found.Diagnose(dir)))
}

// offer returns the flags for each cluster.
func (f *Flags) offer(dir string, found layout.Survey) string {
	lines := []string{"choose one, or keep it in " + FileName + ":"}
	if f.several {
		lines[0] = "choose, more than one if you like, or keep them in " + FileName + ":"
	}
	for _, c := range found.Clusters {
		lines = append(lines, fmt.Sprintf("  --fleet %s --path %s   (%s in %s)", dir, c.Path, c.Kind, c.File))
	}
	return strings.Join(lines, "\n")
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

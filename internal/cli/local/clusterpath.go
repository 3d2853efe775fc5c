package local

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/ui"
)

// ClusterPath returns the cluster's folder in a fleet, for commands that edit or read a fleet and run no cluster:
// the value of --path, or, without one, the folder of the fleet's only cluster, which it prints. It returns an error
// with a hint if the fleet has no cluster or several, and the error of reading the fleet.
func ClusterPath(streams ui.IO, fleet, folder string) (string, error) {
	if folder != "" {
		return folder, checkNotAbove(fleet, folder)
	}
	found, err := layout.Look(fleet)
	if err != nil {
		return "", explainFolder(err)
	}
	switch len(found.Clusters) {
	case 0:
		wayOut, problem := found.Diagnose(fleet)
		if len(found.Nested) == 0 {
			wayOut = cmp.Or(above(fleet), "name the platform's repository with --fleet DIR, and the cluster's folder in it with --path CLUSTER; `tenure create fleet` writes one")
		}
		return "", ui.WithHint(fmt.Errorf("--path is missing: %w", problem), wayOut)
	case 1:
		only := found.Clusters[0]
		fmt.Fprintf(streams.Err, "• --path %s: the %s in %s syncs this folder\n", only.Path, only.Kind, only.File)
		return only.Path, nil
	}
	return "", ui.WithHint(errors.New("--path is missing"), "the fleet has --path "+found.Paths())
}

// checkNotAbove returns an error with a hint if a folder of a fleet is the folder of no cluster, but has the folders of
// clusters in it. It returns nil for a fleet that cannot be read.
func checkNotAbove(fleet, folder string) error {
	found, err := layout.Look(fleet)
	if err != nil {
		return nil //nolint:nilerr // what uses the folder reports its errors
	}
	folder = path.Clean(filepath.ToSlash(folder))
	below := layout.Survey{}
	for _, c := range found.Clusters {
		if c.Path == folder {
			return nil
		}
		if folder == "." || strings.HasPrefix(c.Path, folder+"/") {
			below.Clusters = append(below.Clusters, c)
		}
	}
	if len(below.Clusters) == 0 {
		return nil
	}
	return ui.WithHint(fmt.Errorf("--path %s is the folder of no cluster: the clusters are in folders below it", folder), "give --path "+below.Paths())
}

package local

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/ui"
)

// ClusterPath returns the cluster's folder in a fleet, for commands that edit or read a fleet and run no cluster:
// the value of --path, or, without one, the folder of the fleet's only cluster, which it prints. It returns an error
// with a hint if the fleet has no cluster or several, and the error of reading the fleet.
func ClusterPath(streams ui.IO, fleet, path string) (string, error) {
	if path != "" {
		return path, nil
	}
	found, err := layout.Look(fleet)
	if err != nil {
		return "", err
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

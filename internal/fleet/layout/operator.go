package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// ErrOperator is returned for a cluster in which flux-operator installs Flux.
var ErrOperator = errors.New("flux-operator installs Flux in this cluster, and the local cluster does not run flux-operator")

// CheckOperator returns [ErrOperator] if the cluster's folder has a FluxInstance: then the
// fleet does not hold Flux's manifests, and the flags of its controllers. The error names
// the file. Files that cannot be read count as files without a FluxInstance.
func CheckOperator(dir, clusterPath string) error {
	folder := path.Clean(filepath.ToSlash(clusterPath))
	file := fluxInstance(os.DirFS(dir), folder)
	if file == "" {
		return nil
	}
	return fmt.Errorf("%w: %s has a FluxInstance; use a copy of the fleet without this file, and with %s and %s in %s: Flux's manifests, with the patches of the FluxInstance, and its sync",
		ErrOperator, file, componentsFile, syncFile, path.Join(folder, systemName))
}

// fluxInstance returns the first file of a folder that has a FluxInstance, or "".
func fluxInstance(fleet fs.FS, folder string) string {
	found := ""
	_ = fs.WalkDir(fleet, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // a folder that cannot be read has no FluxInstance
		}
		if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" {
			return nil
		}
		content, err := fs.ReadFile(fleet, name)
		if err != nil || !bytes.Contains(content, []byte("FluxInstance")) {
			return nil //nolint:nilerr // as above
		}
		objects, _ := parse(content)
		for _, o := range objects {
			if o.GetKind() == "FluxInstance" && strings.HasPrefix(o.GetAPIVersion(), "fluxcd.controlplane.io/") {
				found = name
				return fs.SkipAll
			}
		}
		return nil
	})
	return found
}

package flux

import (
	"errors"
	"io/fs"
	"path"
	"slices"

	"sigs.k8s.io/kustomize/api/konfig"
)

// KustomizationFiles returns the names that kustomize gives the file of a folder, the name for a
// new file first.
func KustomizationFiles() []string { return konfig.RecognizedKustomizationFileNames() }

// IsKustomizationFile reports whether the last part of a path is the name of a kustomization file.
func IsKustomizationFile(name string) bool {
	return slices.Contains(KustomizationFiles(), path.Base(name))
}

// KustomizationFile returns the path and the content of the kustomization file in a folder. It
// returns [fs.ErrNotExist] if the folder has none, and the error of the read if the read fails.
func KustomizationFile(files fs.FS, folder string) (name string, content []byte, err error) {
	for _, base := range KustomizationFiles() {
		name = path.Join(folder, base)
		if content, err = fs.ReadFile(files, name); !errors.Is(err, fs.ErrNotExist) {
			return name, content, err
		}
	}
	return "", nil, err
}

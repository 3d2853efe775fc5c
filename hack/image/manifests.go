package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

// The media types of Flux's artifacts: https://fluxcd.io/flux/cheatsheets/oci-artifacts/.
const (
	fluxConfigType  = "application/vnd.cncf.flux.config.v1+json"
	fluxContentType = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

const (
	// manifestsName is the name of the repository with the manifests.
	manifestsName = "tenure-manifests"
	// manifestsDir is the folder of the manifests in the folder of the image.
	manifestsDir = "manifests"
)

// manifests are the objects of an installation as a folder for kustomize, and as an artifact for
// Flux's OCIRepository.
type manifests struct {
	files map[string]string
	image v1.Image
}

// manifests returns the manifests for an image: those of [lockdown.Artifact]. The same sources,
// version and name of the image give the same bytes on every machine.
func (s *source) manifests(repository, tag string) (*manifests, error) {
	content, err := lockdown.Artifact(repository + ":" + tag)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, name := range slices.Sorted(maps.Keys(content)) {
		files = append(files, file{name: name, mode: 0o644, content: []byte(content[name])})
	}
	packed, err := archiveOf(files, s.created)
	if err != nil {
		return nil, fmt.Errorf("cannot pack the manifests: %w", err)
	}
	annotations := s.labels()
	annotations["org.opencontainers.image.title"] = manifestsName
	annotations["org.opencontainers.image.version"] = s.chartVersion()
	m := &manifests{files: content}
	m.image, err = pack(v1.Manifest{Annotations: annotations}, blob{fluxConfigType, []byte("{}")}, blob{fluxContentType, packed})
	return m, err
}

// write writes the folder in place of an earlier one.
func (m *manifests) write(dir string) error {
	to := filepath.Join(dir, manifestsDir)
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("cannot replace the manifests: %w", err)
	}
	for name, content := range m.files {
		file := filepath.Join(to, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // it is to be published
			return fmt.Errorf("cannot write the manifests: %w", err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil { //nolint:gosec // it is to be published
			return fmt.Errorf("cannot write the manifests: %w", err)
		}
	}
	return nil
}

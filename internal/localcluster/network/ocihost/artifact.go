package ocihost

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/tenure-dev/tenure/internal/localcluster/network/archive"
	"github.com/tenure-dev/tenure/internal/localcluster/network/helmhost"
)

// These are the media types of Flux (fluxcd/pkg/oci) and of Helm (HIP 6).
const (
	fluxConfig types.MediaType = "application/vnd.cncf.flux.config.v1+json"
	fluxLayer  types.MediaType = "application/vnd.cncf.flux.content.v1.tar+gzip"
	helmConfig types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	helmLayer  types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// These are the annotations of the OCI image specification (annotations.md).
const (
	annotationCreated     = "org.opencontainers.image.created"
	annotationSource      = "org.opencontainers.image.source"
	annotationRevision    = "org.opencontainers.image.revision"
	annotationTitle       = "org.opencontainers.image.title"
	annotationVersion     = "org.opencontainers.image.version"
	annotationDescription = "org.opencontainers.image.description"
)

// created is the creation time of every artifact, as in `flux push artifact
// --reproducible`.
var created = time.Unix(0, 0).UTC()

// artifact is the served form of a folder. It is immutable.
type artifact struct {
	tag       string
	mediaType types.MediaType // of the manifest
	manifest  []byte
	blobs     map[string][]byte // by digest
	// others are all manifests of a layout, by digest. tags are the digests of the manifests that
	// have a tag of their own, by tag.
	others map[string]document
	tags   map[string]string
}

// source is a mapped folder.
type source struct {
	address Address
	dir     string

	mu      sync.Mutex
	overlay map[string][]byte
	stamp   string
	last    *artifact
}

func (s *source) overlayWith(files map[string][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overlay == nil {
		s.overlay = map[string][]byte{}
	}
	for name, content := range files {
		s.overlay[name] = content
		if content == nil {
			delete(s.overlay, name)
		}
	}
	s.stamp = ""
}

// current returns the artifact for the present content of the folder.
func (s *source) current() (*artifact, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamp, err := archive.Stamp(s.dir)
	if err != nil {
		return nil, err
	}
	if stamp == s.stamp {
		return s.last, nil
	}
	build := s.buildFlux
	switch {
	case IsLayout(s.dir):
		build = s.readLayout
	case helmhost.IsChart(s.dir):
		build = s.buildChart
	}
	one, err := build()
	if err != nil {
		return nil, err
	}
	s.stamp, s.last = stamp, one
	return one, nil
}

// ignored reports whether `flux push artifact` leaves out a file with this
// slash-separated name: files of version control, pictures, videos and archives.
func ignored(name string) bool {
	switch base := path.Base(name); base {
	case ".git", ".gitignore", ".gitmodules", ".gitattributes":
		return true
	default:
		return slices.ContainsFunc([]string{".jpg", ".jpeg", ".gif", ".png", ".wmv", ".flv", ".tar.gz", ".zip"}, func(suffix string) bool {
			return strings.HasSuffix(base, suffix)
		})
	}
}

func (s *source) buildFlux() (*artifact, error) {
	pack, err := archive.New(s.dir, "", s.overlay, func(name string) bool { return !ignored(name) })
	if err != nil {
		return nil, err
	}
	tag := s.address.Tag
	if tag == "" {
		tag = "latest"
	}
	config, err := json.Marshal(v1.ConfigFile{
		Created: v1.Time{Time: created},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{{Algorithm: "sha256", Hex: pack.TarDigest}}},
	})
	if err != nil {
		return nil, err
	}
	return assemble(tag, blob{fluxConfig, config}, blob{fluxLayer, pack.Gzip}, map[string]string{
		annotationCreated:  created.Format(time.RFC3339),
		annotationSource:   Address{Host: s.address.Host, Repository: s.address.Repository}.String(),
		annotationRevision: tag + "@sha256:" + pack.TarDigest,
	})
}

func (s *source) buildChart() (*artifact, error) {
	content, metadata, err := helmhost.Package(s.dir)
	if err != nil {
		return nil, err
	}
	name, _ := metadata["name"].(string)
	version, _ := metadata["version"].(string)
	tag := s.address.Tag
	if tag == "" {
		// Tags have no plus signs; Helm replaces them by underscores.
		tag = strings.ReplaceAll(version, "+", "_")
	}
	if !tagForm.MatchString(tag) {
		return nil, fmt.Errorf("cannot serve the chart %s: its version %s is no tag", s.dir, version)
	}
	config, err := json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("cannot serve the chart %s: %w", s.dir, err)
	}
	annotations := map[string]string{
		annotationCreated: created.Format(time.RFC3339), annotationTitle: name, annotationVersion: version,
	}
	if description, _ := metadata["description"].(string); description != "" {
		annotations[annotationDescription] = description
	}
	return assemble(tag, blob{helmConfig, config}, blob{helmLayer, content}, annotations)
}

// export unpacks the files of an artifact into a new folder.
func (a *artifact) export(dir string) error {
	var manifest v1.Manifest
	if err := json.Unmarshal(a.manifest, &manifest); err != nil {
		return err
	}
	if len(manifest.Layers) == 0 {
		return errors.New("the artifact has no files")
	}
	zip, err := gzip.NewReader(bytes.NewReader(a.blobs[manifest.Layers[0].Digest.String()]))
	if err != nil {
		return err
	}
	for tape := tar.NewReader(zip); ; {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(header.Name)) // a name that this program wrote
		content, err := io.ReadAll(tape)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(file), 0o700)
		}
		if err == nil {
			err = os.WriteFile(file, content, 0o600)
		}
		if err != nil {
			return fmt.Errorf("cannot unpack %s: %w", header.Name, err)
		}
	}
}

type blob struct {
	mediaType types.MediaType
	content   []byte
}

func (b blob) descriptor() v1.Descriptor {
	sum := sha256.Sum256(b.content)
	return v1.Descriptor{
		MediaType: b.mediaType, Size: int64(len(b.content)),
		Digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])},
	}
}

func assemble(tag string, config, layer blob, annotations map[string]string) (*artifact, error) {
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: config.descriptor(), Layers: []v1.Descriptor{layer.descriptor()}, Annotations: annotations,
	})
	if err != nil {
		return nil, err
	}
	return &artifact{tag: tag, mediaType: types.OCIManifestSchema1, manifest: manifest, blobs: map[string][]byte{
		digestOf(config.content): config.content, digestOf(layer.content): layer.content,
	}}, nil
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

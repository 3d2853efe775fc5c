package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// user is the user of the image, as numbers: the kubelet cannot check by a name whether a user
// is root (runAsNonRoot).
const user = "65532:65532"

// assemble returns the image of the programs, which are by architecture.
func (s *source) assemble(programs map[string][]byte) (*built, error) {
	b := &built{}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range s.architectures {
		p, err := s.platform(arch, programs[arch])
		if err != nil {
			return nil, fmt.Errorf("cannot make the image for linux/%s: %w", arch, err)
		}
		b.platforms = append(b.platforms, *p)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        p.image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	b.index = mutate.Annotations(index, s.labels()).(v1.ImageIndex)
	var err error
	if b.digest, err = b.index.Digest(); err != nil {
		return nil, fmt.Errorf("cannot make the index: %w", err)
	}
	return b, nil
}

// labels returns the OCI annotations, which are labels of each image and annotations of all
// manifests.
func (s *source) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       s.program,
		"org.opencontainers.image.description": "The manager and the proxy of Tenure",
		"org.opencontainers.image.source":      sourceURL,
		"org.opencontainers.image.url":         sourceURL,
		"org.opencontainers.image.licenses":    licence,
		"org.opencontainers.image.version":     s.version,
		"org.opencontainers.image.created":     s.created.Format(time.RFC3339),
	}
	if s.revision != "" {
		labels["org.opencontainers.image.revision"] = s.revision
	}
	return labels
}

// platform returns the image for one architecture.
func (s *source) platform(arch string, program []byte) (*platform, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(s.files(program), s.created)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: s.created}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), &v1.ConfigFile{
		Architecture: arch,
		OS:           "linux",
		Created:      created,
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       user,
			WorkingDir: "/",
			Entrypoint: []string{"/" + s.program},
			Labels:     s.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: created, CreatedBy: "make image", Comment: s.version},
	})
	if err != nil {
		return nil, err
	}
	image = mutate.Annotations(image, s.labels()).(v1.Image)
	p := &platform{arch: arch, image: image, info: info}
	if p.digest, err = image.Digest(); err != nil {
		return nil, err
	}
	p.size, err = layer.Size()
	return p, err
}

// file is a file or folder of the layer.
type file struct {
	name    string // without the leading slash; a folder ends with one
	mode    int64
	content []byte
}

// files returns the files of the image. The program needs no others: it trusts the API server
// by the certificate of its service account, writes no files, and reads no time zones.
func (s *source) files(program []byte) []file {
	files := []file{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{name: s.program, mode: 0o755, content: program},
	}
	if s.licenceTexts != nil {
		files = append(files, file{name: noticesFile, mode: 0o644, content: s.licenceTexts})
	}
	return files
}

// layerOf packs files into a layer. They belong to root, so that the program's user cannot
// change them.
func layerOf(files []file, modified time.Time) (v1.Layer, error) {
	packed, err := archiveOf(files, modified)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// archiveOf packs files of root into an archive that is compressed with gzip.
func archiveOf(files []file, modified time.Time) ([]byte, error) {
	var packed bytes.Buffer
	compressor, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := writeArchive(compressor, files, modified); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// denseWindow is how far back zstd looks for text that repeats, in bytes. Reading needs as much memory:
// internal/cli/programs allows no more.
const denseWindow = 64 << 20

// denseArchiveOf packs files of root into an archive that is compressed with zstd, which makes
// programs a fifth smaller than gzip does and is faster to read.
func denseArchiveOf(files []file, modified time.Time) ([]byte, error) {
	var packed bytes.Buffer
	// More goroutines give other bytes.
	compressor, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(denseWindow), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	if err := writeArchive(compressor, files, modified); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// writeArchive writes files of root to a compressor, and closes it.
func writeArchive(compressor io.WriteCloser, files []file, modified time.Time) error {
	archive := tar.NewWriter(compressor)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)),
			ModTime: modified, Format: tar.FormatUSTAR,
		}
		if f.name[len(f.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("cannot pack %s: %w", f.name, err)
		}
		if _, err := archive.Write(f.content); err != nil {
			return fmt.Errorf("cannot pack %s: %w", f.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressor.Close()
}

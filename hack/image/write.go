package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// layoutDir is the folder of the OCI image layout.
	layoutDir = "image"
	// refName is the annotation with the name of an entry of a layout.
	refName = "org.opencontainers.image.ref.name"
)

// write writes the image as an OCI layout, and the documents, into a folder. After an error,
// the previous layout remains.
func (b *bundle) write(dir, reference string) error {
	tmp, err := os.MkdirTemp(dir, ".image-")
	if err != nil {
		return fmt.Errorf("cannot write the image: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := b.writeLayout(filepath.Join(tmp, layoutDir), reference); err != nil {
		return fmt.Errorf("cannot write the image: %w", err)
	}
	for _, d := range b.documents {
		if err := os.WriteFile(filepath.Join(dir, d.file), d.content, 0o644); err != nil { //nolint:gosec // it is to be published
			return fmt.Errorf("cannot write a document: %w", err)
		}
	}
	target := filepath.Join(dir, layoutDir)
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("cannot replace the image: %w", err)
	}
	if err := os.Rename(filepath.Join(tmp, layoutDir), target); err != nil {
		return fmt.Errorf("cannot replace the image: %w", err)
	}
	return nil
}

// writeLayout writes the index under its name, its referrers, and the signatures.
func (b *bundle) writeLayout(dir, reference string) error {
	to, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	named := func(name string) layout.Option { return layout.WithAnnotations(map[string]string{refName: name}) }
	if err := to.AppendIndex(b.index, named(reference)); err != nil {
		return err
	}
	for _, a := range b.artifacts {
		if err := to.AppendImage(a); err != nil {
			return err
		}
	}
	if b.simple == nil {
		return nil
	}
	return to.AppendImage(b.simple, named(simpleTag(b.digest)))
}

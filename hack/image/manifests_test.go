package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

// TestManifests packs the manifests twice and compares them with the folder and with the artifact
// in a registry, which has a signature.
func TestManifests(t *testing.T) {
	t.Parallel()
	h, key := serve(t), newSigner(t)
	at, err := parseTarget(h.name+"/acme/tenure-server:v0.1.0", authn.NewMultiKeychain())
	if err != nil {
		t.Fatal(err)
	}
	s, err := tinySource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.version = "v0.1.0"
	beside, err := at.packages(s.chartVersion())
	if err != nil {
		t.Fatal(err)
	}
	to := beside[1]
	if want := h.name + "/acme/tenure-manifests:0.1.0"; to.tag.String() != want {
		t.Errorf("the manifests go to %s, want %s", to.tag, want)
	}
	want, err := lockdown.Artifact(at.tag.String())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, manifestsDir, "outdated.yaml"))
	var first string
	for range 2 {
		m, err := s.manifests(at.tag.Repository.Name(), "v0.1.0")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.write(dir); err != nil {
			t.Fatal(err)
		}
		digest, err := to.pushPackage(t.Context(), m.image, key)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = digest.String()
		}
		if digest.String() != first {
			t.Errorf("two builds have the digests %s and %s", first, digest)
		}
	}
	if diff := cmp.Diff(want, folder(t, filepath.Join(dir, manifestsDir))); diff != "" {
		t.Errorf("the folder differs, -want +got:\n%s", diff)
	}
	image, err := remote.Image(to.tag)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Config.MediaType != fluxConfigType || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != fluxContentType {
		t.Errorf("the manifest is not one of Flux's: %+v", manifest)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	archive, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, unpackChart(t, archive)); diff != "" {
		t.Errorf("the artifact differs, -want +got:\n%s", diff)
	}
	if pin, err := check(t, key.public(t), to.tag.String(), to.tag.Repository.Name()); err != nil || pin.Digest != first {
		t.Errorf("the signature is of %s, want %s: %v", pin.Digest, first, err)
	}
	// The folder would replace the image.
	other, err := parseTarget(h.name+"/acme/tenure-manifests:v1", authn.NewMultiKeychain())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.packages("0.1.0"); err == nil || !strings.Contains(err.Error(), "the artifact of the manifests goes there") {
		t.Errorf("an image in the manifests' repository: got error %v", err)
	}
}

// write writes an empty file.
func write(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// folder returns the files of a folder.
func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		relative, _ := filepath.Rel(dir, name)
		files[filepath.ToSlash(relative)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

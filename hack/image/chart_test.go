package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/internal/images"
)

// chartSource returns a source with a copy of the repository's chart.
func chartSource(t *testing.T) *source {
	t.Helper()
	s, err := tinySource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(s.root, chartDir), os.DirFS(filepath.Join("..", "..", chartDir))); err != nil {
		t.Fatal(err)
	}
	return s
}

func packageChart(t *testing.T, s *source, repository, tag string) *chart {
	t.Helper()
	c, err := s.chart(repository, tag)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// unpackChart returns the files of a packaged chart.
func unpackChart(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

// TestChart reads packaged charts: only the version and the image differ from the repository.
func TestChart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason, version, tag      string
		wantVersion, wantApp, set string
	}{
		{"a release", "v0.1.0", "v0.1.0", "0.1.0", "v0.1.0", ""},
		{"a pre-release", "v0.1.0-rc.1", "v0.1.0-rc.1", "0.1.0-rc.1", "v0.1.0-rc.1", ""},
		{"changes that are not committed", "v0.1.0+dirty", "v0.1.0-dirty", "0.1.0-dirty", "v0.1.0-dirty", ""},
		{"an image that is pushed under another tag", "v0.1.0", "latest", "0.1.0", "v0.1.0", "latest"},
	} {
		s := chartSource(t)
		s.version = tt.version
		files := unpackChart(t, packageChart(t, s, "registry.example.com/acme/tenure-server", tt.tag).archive)
		var metadata struct{ Name, Version, AppVersion string }
		var values struct {
			Image struct{ Repository, Tag string }
		}
		for name, into := range map[string]any{"tenure/Chart.yaml": &metadata, "tenure/values.yaml": &values} {
			if err := yaml.Unmarshal([]byte(files[name]), into); err != nil {
				t.Fatal(err)
			}
		}
		got := []string{metadata.Name, metadata.Version, metadata.AppVersion, values.Image.Repository, values.Image.Tag}
		if diff := cmp.Diff([]string{"tenure", tt.wantVersion, tt.wantApp, "registry.example.com/acme/tenure-server", tt.set}, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.reason, diff)
		}
		for name, content := range files {
			if name == "tenure/Chart.yaml" || name == "tenure/values.yaml" {
				continue
			}
			want, err := os.ReadFile(filepath.Join(s.root, "charts", name))
			if err != nil || string(want) != content {
				t.Errorf("%s: %s differs from the repository: %v", tt.reason, name, err)
			}
		}
		if len(files) < 10 {
			t.Errorf("%s: the chart has %d files", tt.reason, len(files))
		}
	}
}

// TestChartReproducible packages one chart from two folders.
func TestChartReproducible(t *testing.T) {
	t.Parallel()
	const repository = "registry.example.com/acme/tenure-server"
	first, second := packageChart(t, chartSource(t), repository, "v0.1.0"), packageChart(t, chartSource(t), repository, "v0.1.0")
	if !bytes.Equal(first.archive, second.archive) {
		t.Error("two packages of one chart differ")
	}
	if other := packageChart(t, chartSource(t), "registry.example.com/other/tenure-server", "v0.1.0"); bytes.Equal(first.archive, other.archive) {
		t.Error("the chart is the same for another image")
	}
}

// TestChartChanged packages charts without the lines to set: they would name the image of another
// build.
func TestChartChanged(t *testing.T) {
	t.Parallel()
	for file, line := range map[string]string{"Chart.yaml": "appVersion: ", "values.yaml": "  repository: "} {
		s := chartSource(t)
		name := filepath.Join(s.root, chartDir, file)
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, bytes.ReplaceAll(content, []byte(line), []byte("# ")), 0o600); err != nil {
			t.Fatal(err)
		}
		want := "cannot package the chart: " + file + ": it has 0 lines with " + strings.Trim(line, " :") + ", want 1"
		if _, err := s.chart("registry.example.com/x", "v0.1.0"); err == nil || err.Error() != want {
			t.Errorf("%s: got error %v, want %q", file, err, want)
		}
	}
}

// TestPushChart pushes a chart, and reads it as Helm does. The code that verifies Flux's images
// verifies the signature.
func TestPushChart(t *testing.T) {
	t.Parallel()
	h, s := serve(t), newSigner(t)
	at, err := parseTarget(h.name+"/acme/tenure-server:v0.1.0", authn.NewMultiKeychain())
	if err != nil {
		t.Fatal(err)
	}
	c := packageChart(t, chartSource(t), at.tag.Repository.Name(), "v0.1.0")
	to, err := at.beside(chartName, c.version)
	if err != nil {
		t.Fatal(err)
	}
	if want := h.name + "/acme/tenure:0.1.0"; to.tag.String() != want {
		t.Errorf("the chart goes to %s, want %s", to.tag, want)
	}
	for range 2 {
		if _, err := to.pushPackage(t.Context(), c.image, s); err != nil {
			t.Fatal(err)
		}
	}
	image, err := remote.Image(to.tag)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Config.MediaType != chartConfigType || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != chartContentType {
		t.Errorf("the manifest is not a chart's: %+v", manifest)
	}
	content, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := content[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	if archive, err := io.ReadAll(reader); err != nil || !bytes.Equal(archive, c.archive) {
		t.Errorf("the registry has another archive: %v", err)
	}
	config, err := image.RawConfigFile()
	if err != nil || !strings.Contains(string(config), `"version":"0.1.0"`) {
		t.Errorf("the configuration is %s: %v", config, err)
	}
	digest, err := c.image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if pin, err := check(t, s.public(t), to.tag.String(), to.tag.Repository.Name()); err != nil || pin.Digest != digest.String() {
		t.Errorf("the signature is of %s, want %s: %v", pin.Digest, digest, err)
	}
	if _, err := check(t, newSigner(t).public(t), to.tag.String(), to.tag.Repository.Name()); !errors.Is(err, images.ErrUntrusted) {
		t.Errorf("with another key: got error %v, want %v", err, images.ErrUntrusted)
	}
	if _, err := to.pushPackage(t.Context(), c.image, nil); err != nil {
		t.Errorf("without a key: %v", err)
	}
}

// TestChartTarget names the repository of charts for the image.
func TestChartTarget(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"registry.example.com/acme/tenure-server:v1":   "registry.example.com/acme/tenure:0.1.0",
		"registry.example.com:5000/tenure-server:v1":   "registry.example.com:5000/tenure:0.1.0",
		"registry.example.com/a/b/c/tenure-server:dev": "registry.example.com/a/b/c/tenure:0.1.0",
		"registry.example.com/acme/tenure:v1":          "",
	} {
		at, err := parseTarget(image, authn.NewMultiKeychain())
		if err != nil {
			t.Fatal(err)
		}
		to, err := at.beside(chartName, "0.1.0")
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "the chart goes there") {
				t.Errorf("%s: got error %v", image, err)
			}
			continue
		}
		if err != nil || to.tag.String() != want {
			t.Errorf("%s: got %v and error %v, want %s", image, to, err, want)
		}
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
)

// tinySource writes a module with a program that prints its version into a folder.
func tinySource(dir string) (*source, error) {
	for name, content := range map[string]string{
		"CHANGELOG.md":     "# Changes\n\n## v0.10.0 (today)\n\n## v0.2.0\n",
		"go.mod":           "module github.com/tenure-dev/tenure\n\ngo 1.26.0\n",
		"cmd/tiny/main.go": "package main\n\nimport \"github.com/tenure-dev/tenure/internal/release\"\n\nfunc main() { println(release.Version()) }\n",

		"internal/release/release.go": "package release\n\nvar version = \"\"\n\nfunc Version() string { return version }\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	return &source{
		root: dir, pkg: "./cmd/tiny", program: "tiny", version: "v0.1.0", revision: strings.Repeat("a", 40),
		repository: "registry.example.com/tiny", created: time.Unix(1700000000, 0).UTC(), architectures: []string{runtime.GOARCH},
		systems: releasedSystems,
	}, nil
}

// tinyProgram is the program of tinySource, compiled once.
var tinyProgram = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "tenure-image-test-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := tinySource(dir)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "tiny")
	if err := s.compile(context.Background(), "linux", runtime.GOARCH, file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// tiny returns a small image for both architectures, and its source.
func tiny(t *testing.T) (*source, *built) {
	t.Helper()
	s, err := tinySource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program, err := tinyProgram()
	if err != nil {
		t.Fatal(err)
	}
	s.architectures = known
	b, err := s.assemble(map[string][]byte{"amd64": program, "arm64": program})
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

// TestReproducible builds the same sources in two folders.
func TestReproducible(t *testing.T) {
	t.Parallel()
	var digests []string
	for range 2 {
		s, err := tinySource(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.build(t.Context(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, b.digest.String())
	}
	if program, err := tinyProgram(); err != nil || !bytes.Contains(program, []byte("v0.1.0")) {
		t.Errorf("the program does not know its version: %v", err)
	}
	if digests[0] != digests[1] {
		t.Errorf("the same sources give the images %s and %s", digests[0], digests[1])
	}
}

// TestDigest changes each input of an image and checks that the digest changes, except for the
// repository.
func TestDigest(t *testing.T) {
	t.Parallel()
	program, err := tinyProgram()
	if err != nil {
		t.Fatal(err)
	}
	digest := func(change func(*source)) string {
		s, err := tinySource(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		change(s)
		b, err := s.assemble(map[string][]byte{runtime.GOARCH: program})
		if err != nil {
			t.Fatal(err)
		}
		return b.digest.String()
	}
	was := digest(func(*source) {})
	for _, tt := range []struct {
		reason string
		change func(*source)
		same   bool
	}{
		{"nothing", func(*source) {}, true},
		{"an image has one digest in all registries", func(s *source) { s.repository = "registry.example.com/other" }, true},
		{"the time", func(s *source) { s.created = s.created.Add(time.Second) }, false},
		{"the version", func(s *source) { s.version = "v0.1.1" }, false},
		{"the commit", func(s *source) { s.revision = strings.Repeat("b", 40) }, false},
	} {
		if got := digest(tt.change); (got == was) != tt.same {
			t.Errorf("%s: the digest is %s, and was %s", tt.reason, got, was)
		}
	}
}

// TestImage reads the parts of an image that a container runtime reads.
func TestImage(t *testing.T) {
	t.Parallel()
	s, b := tiny(t)
	manifest, err := b.index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for i, d := range manifest.Manifests {
		platforms = append(platforms, d.Platform.String())
		config, err := b.platforms[i].image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.OS+"/"+config.Architecture != d.Platform.String() {
			t.Errorf("the image of %s is for %s/%s", d.Platform, config.OS, config.Architecture)
		}
		if diff := cmp.Diff(v1.Config{User: "65532:65532", WorkingDir: "/", Entrypoint: []string{"/tiny"}, Labels: s.labels()}, config.Config); diff != "" {
			t.Errorf("the configuration differs (-want +got):\n%s", diff)
		}
		if !config.Created.Equal(s.created) {
			t.Errorf("it was created %s, want %s", config.Created, s.created)
		}
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("the platforms differ (-want +got):\n%s", diff)
	}
	for label, want := range map[string]string{
		"source": sourceURL, "version": "v0.1.0", "revision": strings.Repeat("a", 40), "licenses": "Apache-2.0", "created": "2023-11-14T22:13:20Z",
	} {
		if got := manifest.Annotations["org.opencontainers.image."+label]; got != want {
			t.Errorf("the index has the %s %q, want %q", label, got, want)
		}
	}
}

// TestLayer unpacks a layer.
func TestLayer(t *testing.T) {
	t.Parallel()
	s, err := tinySource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layerOf(s.files([]byte("program")), s.created)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Layer(layer); err != nil {
		t.Errorf("the layer is not valid: %v", err)
	}
	type entry struct {
		Mode    int64
		Content string
	}
	got := map[string]entry{}
	for name, f := range unpack(t, layer) {
		if f.header.Uid != 0 || f.header.Gid != 0 || f.header.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %d:%d with mode %o: a user other than root could change it", name, f.header.Uid, f.header.Gid, f.header.Mode)
		}
		if !f.header.ModTime.Equal(s.created) {
			t.Errorf("%s has the time %s, want %s", name, f.header.ModTime, s.created)
		}
		got[name] = entry{f.header.Mode, string(f.content)}
	}
	want := map[string]entry{
		"etc/":       {0o755, ""},
		"etc/group":  {0o644, "root:x:0:\nnonroot:x:65532:\n"},
		"etc/passwd": {0o644, "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"},
		"tiny":       {0o755, "program"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
}

type packed struct {
	header  *tar.Header
	content []byte
}

func unpack(t *testing.T, layer v1.Layer) map[string]packed {
	t.Helper()
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	files := map[string]packed{}
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = packed{header, text}
	}
}

// TestServer builds an image of the compiled tenure-server, extracts the program, and runs it.
func TestServer(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("../../bin/tenure-server")
	if err != nil {
		t.Fatalf("build it first with `make build`: %v", err)
	}
	s, err := tinySource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.program = "tenure-server"
	b, err := s.assemble(map[string][]byte{runtime.GOARCH: program})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if err := b.check(&log); err != nil {
		t.Error(err)
	}
	t.Log(log.String())
	config, err := b.platforms[0].image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := b.platforms[0].image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the image has %d layers: %v", len(layers), err)
	}
	file := filepath.Join(t.TempDir(), "program")
	testprogram.Write(t, file, unpack(t, layers[0])[strings.TrimPrefix(config.Config.Entrypoint[0], "/")].content)
	for args, want := range map[string]string{"--help": "manager", "version": "tenure "} {
		cmd := exec.CommandContext(t.Context(), file, args)
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("the program of the image with %s: %v, said %q, want %q", args, err, out, want)
		}
	}
}

// TestTooLarge checks that a program that is too large is refused.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	b := &built{platforms: []platform{{arch: "amd64", size: maxSize}, {arch: "arm64", size: maxSize + 1}}}
	if err := b.check(io.Discard); err == nil || !strings.Contains(err.Error(), "linux/arm64") {
		t.Errorf("got error %v, want that the image for arm64 is too large", err)
	}
}

// checkLayout reads an image back from a layout.
func checkLayout(t *testing.T, dir string, b *bundle) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	// The rest is no image that runs.
	tagged, err := index.ImageIndex(b.digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(tagged); err != nil {
		t.Errorf("the index in the layout is not valid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]v1.Hash{}
	referrers := 0
	for _, d := range manifest.Manifests {
		if name := d.Annotations[refName]; name != "" {
			names[name] = d.Digest
		} else {
			referrers++
		}
	}
	if names["registry.example.com/acme/tiny:v0.1.0"] != b.digest || len(names) != 2 || referrers != len(b.artifacts) {
		t.Errorf("the layout has %v and %d referrers", names, referrers)
	}
	if _, found := names[simpleTag(b.digest)]; !found {
		t.Errorf("the layout has no signature: %v", names)
	}
}

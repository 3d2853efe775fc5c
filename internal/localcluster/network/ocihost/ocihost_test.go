package ocihost

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		change(t, dir, name, text)
	}
	return dir
}

func change(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func add(t *testing.T, h *Host, address, dir string) {
	t.Helper()
	a, err := ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Add(a, dir); err != nil {
		t.Fatal(err)
	}
}

func get(h http.Handler, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
	return w
}

// pull fetches a manifest and its blobs, and checks their digests, sizes and media
// types.
func pull(t *testing.T, h http.Handler, repository, reference string) (m v1.Manifest, config, layer []byte) {
	t.Helper()
	w := get(h, repository+"/manifests/"+reference)
	if w.Code != http.StatusOK || w.Header().Get("Docker-Content-Digest") != digestOf(w.Body.Bytes()) {
		t.Fatalf("%s:%s: got %d %s", repository, reference, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	if w.Header().Get("Content-Type") != string(m.MediaType) {
		t.Errorf("the manifest's type is %s in the header and %s inside", w.Header().Get("Content-Type"), m.MediaType)
	}
	blob := func(d v1.Descriptor) []byte {
		w := get(h, repository+"/blobs/"+d.Digest.String())
		if w.Code != http.StatusOK || digestOf(w.Body.Bytes()) != d.Digest.String() || int64(w.Body.Len()) != d.Size {
			t.Fatalf("the blob %s: got %d and %d bytes", d.Digest, w.Code, w.Body.Len())
		}
		return w.Body.Bytes()
	}
	if len(m.Layers) != 1 {
		t.Fatalf("%d layers, want 1", len(m.Layers))
	}
	return m, blob(m.Config), blob(m.Layers[0])
}

func TestFluxArtifact(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{"app.yaml": "a: 1\n", "picture.png": "x", ".git/HEAD": "x", ".gitignore": "x"})
	h := New()
	add(t, h, "oci://oci.example.com/acme/app", dir)
	const repository = "https://oci.example.com/v2/acme/app"
	m, config, layer := pull(t, h, repository, "latest")
	if m.Config.MediaType != fluxConfig || m.Layers[0].MediaType != fluxLayer {
		t.Errorf("media types %s and %s, want Flux's", m.Config.MediaType, m.Layers[0].MediaType)
	}
	zip, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(plain, []byte("app.yaml")) || bytes.Contains(plain, []byte("picture.png")) || bytes.Contains(plain, []byte(".git")) {
		t.Errorf("the layer holds %q", plain)
	}
	var image v1.ConfigFile
	if err := json.Unmarshal(config, &image); err != nil || image.RootFS.DiffIDs[0].String() != digestOf(plain) {
		t.Errorf("the config is %s, %v, want the digest of the layer's content", config, err)
	}
	want := map[string]string{
		"org.opencontainers.image.created":  "1970-01-01T00:00:00Z",
		"org.opencontainers.image.source":   "oci://oci.example.com/acme/app",
		"org.opencontainers.image.revision": "latest@" + digestOf(plain),
	}
	if diff := cmp.Diff(want, m.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	manifest := get(h, repository+"/manifests/latest")
	digest := manifest.Header().Get("Docker-Content-Digest")
	if w := get(h, repository+"/manifests/"+digest); w.Body.String() != manifest.Body.String() {
		t.Error("the manifest by digest is another one")
	}
	other := New()
	add(t, other, "oci://oci.example.com/acme/app", files(t, map[string]string{"app.yaml": "a: 1\n"}))
	if got := get(other, repository+"/manifests/latest").Header().Get("Docker-Content-Digest"); got != digest {
		t.Errorf("the same files in another folder are %s, want %s", got, digest)
	}
	change(t, dir, "app.yaml", "a: 22\n")
	if got := get(h, repository+"/manifests/latest").Header().Get("Docker-Content-Digest"); got == digest {
		t.Error("a changed file does not show")
	}
	pull(t, h, repository, "latest")
}

func TestChart(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{"Chart.yaml": "apiVersion: v2\nname: hello\nversion: 1.2.3+b.4\ndescription: says hello\n"})
	h := New()
	add(t, h, "oci://oci.example.com/charts/hello", dir)
	m, config, _ := pull(t, h, "https://oci.example.com/v2/charts/hello", "1.2.3_b.4")
	if m.Config.MediaType != helmConfig || m.Layers[0].MediaType != helmLayer {
		t.Errorf("media types %s and %s, want Helm's", m.Config.MediaType, m.Layers[0].MediaType)
	}
	if want := `{"apiVersion":"v2","description":"says hello","name":"hello","version":"1.2.3+b.4"}`; string(config) != want {
		t.Errorf("the config is %s, want %s", config, want)
	}
	want := map[string]string{
		"org.opencontainers.image.created": "1970-01-01T00:00:00Z", "org.opencontainers.image.title": "hello",
		"org.opencontainers.image.version": "1.2.3+b.4", "org.opencontainers.image.description": "says hello",
	}
	if diff := cmp.Diff(want, m.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	change(t, dir, "Chart.yaml", "name: hello\nversion: 2.0.0\n")
	if w := get(h, "https://oci.example.com/v2/charts/hello/tags/list"); w.Body.String() != `{"name":"charts/hello","tags":["2.0.0"]}` {
		t.Errorf("after a new version the tags are %s", w.Body)
	}
	change(t, dir, "Chart.yaml", "name: [")
	if w := get(h, "https://oci.example.com/v2/charts/hello/tags/list"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "cannot parse Chart.yaml") {
		t.Errorf("a broken chart: got %d %s", w.Code, w.Body)
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	h := New()
	for _, tag := range []string{":v1", ":v3", ":v2", ""} {
		add(t, h, "oci://oci.example.com:5000/app"+tag, files(t, map[string]string{"a.yaml": tag}))
	}
	add(t, h, "oci://oci.example.com/app", files(t, map[string]string{"a.yaml": "another port"}))
	if diff := cmp.Diff([]string{"oci.example.com", "oci.example.com:5000"}, h.Hosts()); diff != "" {
		t.Errorf("Hosts (-want +got):\n%s", diff)
	}
	const at = "https://oci.example.com:5000"
	for _, tc := range []struct {
		reason, url string
		status      int
		body        string // part of it
	}{
		{"the version check", at + "/v2/", 200, ""},
		{"tags in order", at + "/v2/app/tags/list", 200, `{"name":"app","tags":["latest","v1","v2","v3"]}`},
		{"a page of tags", at + "/v2/app/tags/list?n=2", 200, `{"name":"app","tags":["latest","v1"]}`},
		{"the next page", at + "/v2/app/tags/list?n=2&last=v1", 200, `{"name":"app","tags":["v2","v3"]}`},
		{"behind the last page", at + "/v2/app/tags/list?n=2&last=v3", 200, `{"name":"app","tags":[]}`},
		{"a default port is left out", "https://OCI.example.com:443/v2/app/tags/list", 200, `{"name":"app","tags":["latest"]}`},
		{"a tag that is missing", at + "/v2/app/manifests/v4", 404, "MANIFEST_UNKNOWN"},
		{"a blob that is missing", at + "/v2/app/blobs/sha256:0", 404, "BLOB_UNKNOWN"},
		{"a repository that is not mapped names the flag", at + "/v2/acme/other/manifests/v1", 403, "oci://oci.example.com:5000/acme/other is not mapped (add --map oci://oci.example.com:5000/acme/other=DIR)"},
		{"a host that is not mapped", "https://e.com/v2/app/manifests/v1", 403, "DENIED"},
		{"something else", at + "/v2/_catalog", 404, "UNSUPPORTED"},
		{"outside of the registry", at + "/etc/passwd", 404, "UNSUPPORTED"},
	} {
		w := get(h, tc.url)
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.body) {
			t.Errorf("%s: got %d %s, want %d %s", tc.reason, w.Code, w.Body, tc.status, tc.body)
		}
	}
	if link := get(h, at+"/v2/app/tags/list?n=2").Header().Get("Link"); link != `</v2/app/tags/list?n=2&last=v1>; rel="next"` {
		t.Errorf("the link to the next page is %q", link)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, at+"/v2/app/manifests/v9", strings.NewReader("{}")))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a push got %d, want 405", w.Code)
	}
	a, err := ParseAddress("oci://oci.example.com:5000/app:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Add(a, t.TempDir()); err == nil || !strings.Contains(err.Error(), "are mapped to oci://oci.example.com:5000/app:latest") {
		t.Errorf("a tag twice: got %v", err)
	}
}

// TestDockerHub asks for an artifact of docker.io by the names that clients use for it.
func TestDockerHub(t *testing.T) {
	t.Parallel()
	h := New()
	a, err := ParseAddress("oci://docker.io/acme/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Add(a, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"docker.io", "index.docker.io", "registry-1.docker.io:443"} {
		if w := get(h, "https://"+host+"/v2/acme/app/tags/list"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "v1") {
			t.Errorf("%s: got %d %s", host, w.Code, w.Body)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"oci://e.com/a", "oci://e.com:5000/a/b:v1", "oci://E.com./a", "oci://", "oci://e.com/a:v/b", "oci://e.com/a@sha256:0", "oci://e.com/../a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := ParseAddress(raw)
		if err != nil {
			return
		}
		again, err := ParseAddress(a.String())
		if err != nil || again != a {
			t.Errorf("%q is %+v, which reads as %+v, %v", raw, a, again, err)
		}
		repository, kind, _, ok := parsePath("/v2/" + a.Repository + "/tags/list")
		if !ok || kind != "tags" || repository != a.Repository {
			t.Errorf("%q cannot be asked for", raw)
		}
	})
}

// TestOverlay checks that a file of the overlay replaces the folder's, also after a change of the
// folder, and that Export writes the files as they are served.
func TestOverlay(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{"a.yaml": "a", "b/c.yaml": "c"})
	h := New()
	address := Address{Host: "images.example.com", Repository: "fleet", Tag: "v1"}
	if _, err := h.Overlay(address, map[string][]byte{"a.yaml": nil}); err == nil || h.Serves(address) {
		t.Error("an address that nothing serves has an overlay")
	}
	add(t, h, address.String(), dir)
	const manifest = "https://images.example.com/v2/fleet/manifests/v1"
	before, _, _ := pull(t, h, "https://images.example.com/v2/fleet", "v1")
	first := get(h, manifest).Header().Get("Docker-Content-Digest")
	digest, err := h.Overlay(address, map[string][]byte{"a.yaml": []byte("changed"), "d/new.yaml": []byte("new"), "gone.yaml": []byte("gone")})
	if err != nil {
		t.Fatal(err)
	}
	after, _, _ := pull(t, h, "https://images.example.com/v2/fleet", "v1")
	second := get(h, manifest).Header().Get("Docker-Content-Digest")
	if before.Layers[0].Digest == after.Layers[0].Digest || digest != second || digest == first {
		t.Errorf("the artifact %s becomes %s with its overlay %s", first, second, digest)
	}
	if _, err := h.Overlay(address, map[string][]byte{"gone.yaml": nil}); err != nil {
		t.Fatal(err)
	}
	change(t, dir, "b/c.yaml", "later")
	out := t.TempDir()
	if err := h.Export(address, out); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, "gone.yaml")); err == nil {
		t.Error("a file that was removed from the overlay is served")
	}
	got := map[string]string{}
	for _, name := range []string{"a.yaml", "b/c.yaml", "d/new.yaml"} {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(content)
	}
	if diff := cmp.Diff(map[string]string{"a.yaml": "changed", "b/c.yaml": "later", "d/new.yaml": "new"}, got); diff != "" {
		t.Errorf("files of the artifact (-want +got):\n%s", diff)
	}
}

// A folder without a tag is served, and changed, at the tag that it got; a removed one is not
// served, and the others of its repository are.
func TestServes(t *testing.T) {
	t.Parallel()
	h := New()
	add(t, h, "oci://images.example.com/fleet", files(t, map[string]string{"a.yaml": "a"}))
	add(t, h, "oci://images.example.com/fleet:v1", files(t, map[string]string{"a.yaml": "b"}))
	latest := Address{Host: "images.example.com", Repository: "fleet", Tag: "latest"}
	first, second := latest, latest
	first.Tag, second.Tag = "v1", "v2"
	if !h.Serves(latest) || !h.Serves(first) || h.Serves(second) {
		t.Error("it serves other tags than latest and v1")
	}
	if _, err := h.Overlay(latest, map[string][]byte{"a.yaml": []byte("c")}); err != nil {
		t.Error(err)
	}
	h.Remove(first)
	h.Remove(second)
	if !h.Serves(latest) || h.Serves(first) {
		t.Error("it serves other tags than latest after v1 is removed")
	}
}

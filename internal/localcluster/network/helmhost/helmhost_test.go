package helmhost

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/localcluster/network/archive"
	"sigs.k8s.io/yaml"
)

// files creates a folder with files.
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

// packed returns the content of a .tgz file with the given files.
func packed(t *testing.T, content map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	tape := tar.NewWriter(zip)
	for name, text := range content {
		if err := tape.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tape.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tape.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func chart(name, version string) string { return "name: " + name + "\nversion: " + version + "\n" }

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

type entry struct {
	Version, Digest, Created string
	URLs                     []string
}

func index(t *testing.T, h http.Handler, path string) map[string][]entry {
	t.Helper()
	w := get(h, path)
	var content struct {
		APIVersion string
		Entries    map[string][]entry
	}
	if err := yaml.Unmarshal(w.Body.Bytes(), &content); err != nil || w.Code != http.StatusOK || content.APIVersion != "v1" {
		t.Fatalf("the index is %d %s, %v", w.Code, w.Body, err)
	}
	return content.Entries
}

func TestRepository(t *testing.T) {
	t.Parallel()
	content := map[string]string{
		"app/Chart.yaml":       chart("app", "1.0.0+build.5"),
		"app/templates/a.yaml": "a: 1\n",
		"[odd]/Chart.yaml":     chart("odd", "0.1.0"),
		"old-0.9.0.tgz":        packed(t, map[string]string{"old/Chart.yaml": chart("old", "0.9.0"), "old/charts/sub/Chart.yaml": chart("sub", "1.0.0")}),
		"README.md":            "not a chart",
	}
	h, err := New(files(t, content), "/stable/")
	if err != nil {
		t.Fatal(err)
	}
	entries := index(t, h, "/stable/index.yaml")
	versions := map[string][]string{}
	for name, all := range entries {
		for _, e := range all {
			versions[name] = append(versions[name], e.Version+" "+e.URLs[0])
			w := get(h, "/stable/"+e.URLs[0])
			sum := sha256.Sum256(w.Body.Bytes())
			if w.Code != http.StatusOK || hex.EncodeToString(sum[:]) != e.Digest {
				t.Errorf("%s: got %d and the digest %x, want %s", e.URLs[0], w.Code, sum, e.Digest)
			}
			metadata, err := metadataOf(w.Body.Bytes())
			if err != nil || metadata["name"] != name {
				t.Errorf("%s holds %v, %v", e.URLs[0], metadata, err)
			}
		}
	}
	want := map[string][]string{"app": {"1.0.0+build.5 app-1.0.0+build.5.tgz"}, "odd": {"0.1.0 odd-0.1.0.tgz"}, "old": {"0.9.0 old-0.9.0.tgz"}}
	if diff := cmp.Diff(want, versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	again, err := New(files(t, content), "/stable")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(get(h, "/stable/index.yaml").Body.String(), get(again, "/stable/index.yaml").Body.String()); diff != "" {
		t.Errorf("the same charts in another folder have another index:\n%s", diff)
	}
	for reason, path := range map[string]string{
		"a file that is no chart":      "/stable/README.md",
		"a file of a chart":            "/stable/app/Chart.yaml",
		"a way out of the folder":      "/stable/../../etc/passwd",
		"a way out, hidden":            "/stable/%2e%2e/%2e%2e/etc/passwd",
		"the folder itself":            "/stable/",
		"a path that only begins so":   "/stables/x/../old-0.9.0.tgz/",
		"a chart that is not there":    "/stable/app-2.0.0.tgz",
		"the index of another chart's": "/stable/app/index.yaml",
	} {
		if w := get(h, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d %q, want 404", reason, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/stable/api/charts", strings.NewReader("x")))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a push got %d, want 405", w.Code)
	}
}

// TestChange checks that the next request shows a change, also a mistake and its
// repair.
func TestChange(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{"Chart.yaml": chart("app", "1.0.0"), "values.yaml": "a: 1\n"})
	h, err := New(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	before := index(t, h, "/index.yaml")["app"][0]
	change(t, dir, "values.yaml", "a: 22\n")
	if after := index(t, h, "/index.yaml")["app"][0]; after.Digest == before.Digest {
		t.Error("a changed file does not show")
	}
	change(t, dir, "Chart.yaml", "name: [")
	if w := get(h, "/index.yaml"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "cannot parse Chart.yaml") {
		t.Errorf("a broken Chart.yaml: got %d %q", w.Code, w.Body)
	}
	change(t, dir, "Chart.yaml", chart("app", "2.0.0"))
	if after := index(t, h, "/index.yaml")["app"][0]; after.Version != "2.0.0" {
		t.Errorf("after the mistake is mended, the version is %s", after.Version)
	}
}

func TestBadCharts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		content map[string]string
		err     string
	}{
		{"an empty folder", nil, "no Helm charts in the folder"},
		{"charts too deep", map[string]string{"a/b/Chart.yaml": chart("a", "1.0.0")}, "no Helm charts in the folder"},
		{"no YAML", map[string]string{"Chart.yaml": ":\n\t"}, "cannot parse Chart.yaml"},
		{"no name", map[string]string{"Chart.yaml": "version: 1.0.0\n"}, "no usable name"},
		{"a version that is a number", map[string]string{"Chart.yaml": "name: a\nversion: 1.0\n"}, "no usable version"},
		{"a name that leads out", map[string]string{"Chart.yaml": chart("..", "1.0.0")}, "no usable name"},
		{"a name with a slash", map[string]string{"Chart.yaml": chart("a/../../b", "1.0.0")}, "no usable name"},
		{"a version with a slash", map[string]string{"Chart.yaml": chart("a", "1.0.0/../b")}, "no usable version"},
		{"one chart twice", map[string]string{"a/Chart.yaml": chart("a", "1.0.0"), "b/Chart.yaml": chart("a", "1.0.0")}, "two charts in it are a-1.0.0.tgz"},
		{"an archive that is none", map[string]string{"a.tgz": "x"}, "cannot read the chart"},
		{"an archive without a chart", map[string]string{"a.tgz": packed(t, map[string]string{"a/values.yaml": ""})}, "it has no Chart.yaml"},
		{"an archive that leads out", map[string]string{"a.tgz": packed(t, map[string]string{"../Chart.yaml": chart("a", "1.0.0")})}, "it has no Chart.yaml"},
		{"an archive whose chart lies at its top", map[string]string{"a.tgz": packed(t, map[string]string{"Chart.yaml": chart("a", "1.0.0")})}, "it has no Chart.yaml"},
		{"a large file", map[string]string{"Chart.yaml": chart("a", "1.0.0"), "big": strings.Repeat("x", archive.MaxFile+1)}, "big is too large"},
	} {
		_, err := New(files(t, tc.content), "")
		if err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: got %v, want %q", tc.reason, err, tc.err)
		}
	}
	if _, err := New(t.TempDir(), ""); !errors.Is(err, ErrNoCharts) {
		t.Errorf("an empty folder: got %v, want %v", err, ErrNoCharts)
	}
}

// TestLinks checks that links out of the folder are not followed.
func TestLinks(t *testing.T) {
	t.Parallel()
	outside := files(t, map[string]string{"Chart.yaml": chart("outside", "1.0.0"), "a.tgz": packed(t, map[string]string{"a/Chart.yaml": chart("a", "1.0.0")})})
	dir := t.TempDir()
	for name, to := range map[string]string{"linked": outside, "a.tgz": filepath.Join(outside, "a.tgz"), "Chart.yaml": filepath.Join(outside, "Chart.yaml")} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(dir, ""); !errors.Is(err, ErrNoCharts) {
		t.Errorf("got %v, want %v", err, ErrNoCharts)
	}
}

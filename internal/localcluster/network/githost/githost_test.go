package githost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const fleetURL = "https://git.example.com/acme/fleet"

// fixture is a Host for one test, with an HTTP server.
type fixture struct {
	*Host
	server *httptest.Server
	state  string
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	state := t.TempDir()
	h, err := New(t.Context(), Config{Dir: state, Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return &fixture{Host: h, server: server, state: state}
}

type testWriter struct{ testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (f *fixture) add(t testing.TB, m Mapping) {
	t.Helper()
	if err := f.Add(t.Context(), m); err != nil {
		t.Fatalf("Add: %v", err)
	}
}

func (f *fixture) head(t testing.TB, url, branch string) string {
	t.Helper()
	revision, ok := f.Head(url, branch)
	if !ok {
		t.Fatalf("Head(%s, %s): not served", url, branch)
	}
	return revision
}

// client runs git as a user would, but over the test's server: requests keep the
// address's host in the Host header, as behind the cluster's proxy.
func (f *fixture) client(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	u, err := url.Parse(f.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	config := []string{"-c", "http.proxy=http://" + u.Host, "-c", "protocol.allow=always"}
	return tryGit(t, dir, append(config, args...)...)
}

// plainHTTP returns the address with the scheme http, for clients without TLS.
func plainHTTP(address string) string { return strings.Replace(address, "https://", "http://", 1) }

func (f *fixture) clone(t testing.TB, address string, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	if out, err := f.client(t, "", append(append([]string{"clone", "--quiet"}, args...), plainHTTP(address), dir)...); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	return dir
}

func tryGit(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com",
		"GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z",
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return strings.TrimSpace(out.String()), err
}

func git1(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(t, dir, args...)
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

type files map[string]string

// write writes files into a folder that may be served and watched. Each file appears
// with its whole content at once.
func write(t testing.TB, dir string, content files) {
	t.Helper()
	whole := filepath.Join(t.TempDir(), "whole")
	for path, text := range content {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(whole, []byte(text), 0o644), os.Rename(whole, path)); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t testing.TB, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// workTreeOf creates a repository with one commit on main.
func workTreeOf(t testing.TB, content files) string {
	t.Helper()
	dir := t.TempDir()
	git1(t, dir, "init", "--quiet", "-b", "main")
	write(t, dir, content)
	git1(t, dir, "add", "-A")
	git1(t, dir, "commit", "--quiet", "-m", "first")
	return dir
}

// noise returns n bytes that do not compress.
func noise(n int) string {
	bytes := make([]byte, n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range bytes {
		bytes[i] = byte(random.Uint32())
	}
	return string(bytes)
}

// snapshotOf returns the mode, size and time of all files in a folder, by path.
func snapshotOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		all[path] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCleanWorkTreeServesTheUsersCommit(t *testing.T) {
	t.Parallel()
	dir := workTreeOf(t, files{"app.yaml": "one", ".gitignore": "secret\n"})
	git1(t, dir, "tag", "-a", "v1.0.0", "-m", "v1")
	git1(t, dir, "branch", "staging")
	want := git1(t, dir, "rev-parse", "HEAD")
	write(t, dir, files{"secret": "ignored"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL + ".git", Dir: dir})
	if diff := cmp.Diff(want, f.head(t, fleetURL, "main")); diff != "" {
		t.Errorf("Head: -want +got:\n%s", diff)
	}
	clone := f.clone(t, fleetURL)
	if diff := cmp.Diff(want, git1(t, clone, "rev-parse", "HEAD", "refs/remotes/origin/staging")[:40]); diff != "" {
		t.Errorf("clone: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("v1.0.0", git1(t, clone, "tag")); diff != "" {
		t.Errorf("tags: -want +got:\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(clone, "secret")); err == nil {
		t.Error("an ignored file is served")
	}
}

func TestDirtyWorkTree(t *testing.T) {
	t.Parallel()
	dir := workTreeOf(t, files{"app.yaml": "one", "gone.yaml": "x", "dir/file": "y"})
	parent := git1(t, dir, "rev-parse", "HEAD")
	write(t, dir, files{"app.yaml": "two", "new.yaml": "new"})
	for _, name := range []string{"gone.yaml", "dir/file", "dir"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, files{"dir": "a file now"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Dir: dir})
	clone := f.clone(t, fleetURL)
	if diff := cmp.Diff(parent, git1(t, clone, "rev-parse", "HEAD^")); diff != "" {
		t.Errorf("parent: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("app.yaml\ndir\nnew.yaml", git1(t, clone, "ls-files")); diff != "" {
		t.Errorf("files: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("two", read(t, clone, "app.yaml")); diff != "" {
		t.Errorf("app.yaml: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("2026-01-01T00:00:00+00:00 tenure", git1(t, clone, "log", "-1", "--format=%cI %cn")); diff != "" {
		t.Errorf("commit: -want +got:\n%s", diff)
	}
}

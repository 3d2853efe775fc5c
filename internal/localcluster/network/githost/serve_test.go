package githost

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// TestMain lets the test binary replace the ssh program when git runs it, so that
// tests need no SSH client.
func TestMain(m *testing.M) {
	if address := os.Getenv("GITHOST_TEST_SSH"); address != "" {
		os.Exit(sshClient(address, os.Getenv("GITHOST_TEST_KNOWN_HOSTS"), os.Args[1:]))
	}
	os.Exit(m.Run())
}

// sshClient does the work of ssh for git: it runs a command on a host.
func sshClient(address, knownHosts string, args []string) int {
	check, err := knownhosts.New(knownHosts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 255
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 255
	}
	c, channels, requests, err := ssh.NewClientConn(conn, "git.example.com:22", &ssh.ClientConfig{User: "git", HostKeyCallback: check})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 255
	}
	client := ssh.NewClient(c, channels, requests)
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 255
	}
	if version := os.Getenv("GIT_PROTOCOL"); version != "" {
		_ = session.Setenv("GIT_PROTOCOL", version)
	}
	session.Stdin, session.Stdout, session.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := session.Run(args[len(args)-1]); err != nil {
		return 1
	}
	return 0
}

// ssh serves SSH as git.example.com on a loopback port and returns its address.
func (f *fixture) ssh(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go f.ServeSSH(conn, "git.example.com")
		}
	}()
	return listener.Addr().String()
}

func TestHTTPClones(t *testing.T) {
	t.Parallel()
	dir := workTreeOf(t, files{"app.yaml": "one"})
	first := git1(t, dir, "rev-parse", "HEAD")
	git1(t, dir, "branch", "staging")
	git1(t, dir, "tag", "v1.0.0")
	write(t, dir, files{"app.yaml": strings.Repeat("two\n", 10000)})
	git1(t, dir, "commit", "--quiet", "-a", "-m", "second")
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Dir: dir})
	tests := map[string]struct {
		reason  string
		address string
		args    []string
		want    string // revision
		commits string
	}{
		"Full":         {"the whole history", fleetURL, nil, f.head(t, fleetURL, "main"), "2"},
		"DotGit":       {"the address may end in .git", fleetURL + ".git", nil, f.head(t, fleetURL, "main"), "2"},
		"Credentials":  {"any credentials are accepted", "https://user:secret@git.example.com/acme/fleet", nil, f.head(t, fleetURL, "main"), "2"},
		"Case":         {"host names have no case", "https://GIT.example.com/acme/fleet", nil, f.head(t, fleetURL, "main"), "2"},
		"Shallow":      {"Flux clones one commit only", fleetURL, []string{"--depth=1"}, f.head(t, fleetURL, "main"), "1"},
		"SingleBranch": {"Flux clones one branch only", fleetURL, []string{"--single-branch", "-b", "staging"}, first, "1"},
		"Tag":          {"ref.tag and ref.semver", fleetURL, []string{"--depth=1", "-b", "v1.0.0"}, first, "1"},
		"Protocol0":    {"go-git speaks no version 2", fleetURL, []string{"-c", "protocol.version=0"}, f.head(t, fleetURL, "main"), "2"},
		"Protocol2":    {"git speaks version 2", fleetURL, []string{"-c", "protocol.version=2"}, f.head(t, fleetURL, "main"), "2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clone := f.clone(t, tc.address, tc.args...)
			got := git1(t, clone, "rev-parse", "HEAD") + " " + git1(t, clone, "rev-list", "--count", "HEAD")
			if diff := cmp.Diff(tc.want+" "+tc.commits, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			git1(t, clone, "fsck", "--strict")
		})
	}
}

func TestHTTPAnswers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: t.TempDir()})
	tests := map[string]struct {
		reason       string
		method, path string
		status       int
		body         string
	}{
		"Unknown":       {"the user must learn which flag is missing", "GET", "/acme/other.git/info/refs?service=git-upload-pack", 404, "git.example.com/acme/other is not mapped (use --map https://git.example.com/acme/other=DIR)"},
		"UnknownFolder": {"in a browser too", "GET", "/acme/other", 404, "--map https://git.example.com/acme/other=DIR"},
		"Browser":       {"a repository is not a page", "GET", "/acme/fleet", 404, "use git clone"},
		"Files":         {"files are not served, only the protocol", "GET", "/acme/fleet/HEAD", 404, "not mapped"},
		"Dumb":          {"git's old protocol reads files", "GET", "/acme/fleet/info/refs", 403, "smart HTTP"},
		"Service":       {"only two programs may be run", "GET", "/acme/fleet/info/refs?service=git-upload-archive", 403, "smart HTTP"},
		"Method":        {"a GET has no request to answer", "GET", "/acme/fleet/git-upload-pack", 405, "POST"},
		"Dots":          {"a path names no file", "GET", "/acme/%2e%2e/acme/fleet/info/refs?service=git-upload-pack", 404, "not the path"},
		"Slashes":       {"a client may double a slash", "GET", "//acme//fleet.git/info/refs?service=git-upload-pack", 200, "# service=git-upload-pack"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := f.request(t, tc.method, tc.path, nil, nil)
			if status != tc.status || !strings.Contains(body, tc.body) {
				t.Errorf("%s: want %d %q, got %d %q", tc.reason, tc.status, tc.body, status, body)
			}
		})
	}
}

// request sends a request for git.example.com to the test's server.
func (f *fixture) request(t testing.TB, method, path string, header http.Header, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, f.server.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "git.example.com"
	for name, values := range header {
		r.Header[name] = values
	}
	// RoundTrip follows no redirects.
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func TestHTTPRequestBodies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	write(t, dir, files{"app.yaml": "one"})
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: dir})
	want := fmt.Sprintf("0032want %s\n00000009done\n", f.head(t, fleetURL, "main"))
	zipped := &bytes.Buffer{}
	zip := gzip.NewWriter(zipped)
	if _, err := io.WriteString(zip, want); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		reason string
		body   io.Reader
		coding string
	}{
		"Plain":   {"a length is given", strings.NewReader(want), ""},
		"Gzip":    {"git compresses long requests", bytes.NewReader(zipped.Bytes()), "gzip"},
		"Chunked": {"a client that streams gives no length", struct{ io.Reader }{strings.NewReader(want)}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{"Content-Type": {"application/x-git-upload-pack-request"}}
			if tc.coding != "" {
				header.Set("Content-Encoding", tc.coding)
			}
			status, body := f.request(t, "POST", "/acme/fleet/git-upload-pack", header, tc.body)
			if status != 200 || !strings.HasPrefix(body, "0008NAK\nPACK") {
				t.Errorf("%s: want a pack, got %d %.80q", tc.reason, status, body)
			}
		})
	}
}

func TestPush(t *testing.T) {
	t.Parallel()
	dir := workTreeOf(t, files{"app.yaml": "one"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Dir: dir})
	changes := f.watch(t)
	settled(t, changes, dir)
	before := snapshotOf(t, dir)
	clone := f.clone(t, fleetURL)
	// A commit larger than git's buffer makes git send a chunked request.
	write(t, clone, files{"app.yaml": "image: v2", "large": noise(3 << 20)})
	git1(t, clone, "add", "-A")
	git1(t, clone, "commit", "--quiet", "-m", "update image")
	want := git1(t, clone, "rev-parse", "HEAD")
	if out, err := f.client(t, clone, "push", "--quiet", "origin", "main", "HEAD:refs/heads/updates"); err != nil {
		t.Fatalf("git push: %v\n%s", err, out)
	}
	got := []string{}
	for range 2 {
		c := next(t, changes, "a push", func(c Change) bool { return c.Revision == want })
		got = append(got, c.Branch)
	}
	if diff := cmp.Diff([]string{"main", "updates"}, got); diff != "" {
		t.Errorf("branches: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, snapshotOf(t, dir)); diff != "" {
		t.Errorf("the user's folder changed: -before +after:\n%s", diff)
	}
	// A commit to another branch keeps the push, an edit replaces it.
	git1(t, dir, "branch", "other")
	next(t, changes, "a branch", moved("other"))
	if diff := cmp.Diff(want, f.head(t, fleetURL, "main")); diff != "" {
		t.Errorf("the push is gone: -want +got:\n%s", diff)
	}
	write(t, dir, files{"app.yaml": "image: v3"})
	next(t, changes, "an edit", moved("main"))
	if diff := cmp.Diff("image: v3", f.show(t, fleetURL, "main", "app.yaml")); diff != "" {
		t.Errorf("app.yaml: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want, f.head(t, fleetURL, "updates")); diff != "" {
		t.Errorf("a pushed branch that the folder does not have: -want +got:\n%s", diff)
	}
}

func TestSSH(t *testing.T) {
	t.Parallel()
	dir := workTreeOf(t, files{"app.yaml": "one"})
	f := newFixture(t)
	f.add(t, Mapping{URL: "git@git.example.com:acme/fleet.git", Dir: dir})
	address := f.ssh(t)
	known := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(known, f.KnownHosts("git.example.com"), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The variables are in the command, because git gets an environment of its own.
	client := fmt.Sprintf("env GITHOST_TEST_SSH=%s GITHOST_TEST_KNOWN_HOSTS=%s %s", address, known, self)
	config := []string{"-c", "core.sshCommand=" + client, "-c", "ssh.variant=ssh"}
	for _, url := range []string{"git@git.example.com:acme/fleet", "ssh://git@git.example.com/acme/fleet.git"} {
		clone := filepath.Join(t.TempDir(), "clone")
		git1(t, "", append(config, "clone", "--quiet", "--depth=1", url, clone)...)
		if diff := cmp.Diff(f.head(t, fleetURL, "main"), git1(t, clone, "rev-parse", "HEAD")); diff != "" {
			t.Errorf("%s: -want +got:\n%s", url, diff)
		}
		write(t, clone, files{"app.yaml": url})
		git1(t, clone, "commit", "--quiet", "-a", "-m", "edit")
		git1(t, clone, append(config, "push", "--quiet", "origin", "main")...)
		if diff := cmp.Diff(git1(t, clone, "rev-parse", "HEAD"), f.head(t, fleetURL, "main")); diff != "" {
			t.Errorf("a push to %s: -want +got:\n%s", url, diff)
		}
	}
	out, err := tryGit(t, "", append(config, "clone", "git@git.example.com:acme/other", filepath.Join(t.TempDir(), "clone"))...)
	if err == nil || !strings.Contains(out, "--map https://git.example.com/acme/other=DIR") {
		t.Errorf("a repository that is not mapped: want the flag, got %v %q", err, out)
	}
}

func TestSSHRunsNothingElse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: t.TempDir()})
	conn, err := net.Dial("tcp", f.ssh(t))
	if err != nil {
		t.Fatal(err)
	}
	c, channels, requests, err := ssh.NewClientConn(conn, "", &ssh.ClientConfig{
		User: "anyone", Auth: []ssh.AuthMethod{ssh.Password("any")}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	client := ssh.NewClient(c, channels, requests)
	defer client.Close()
	if _, err := client.Dial("tcp", f.server.Listener.Addr().String()); err == nil {
		t.Error("port forwarding: want an error")
	}
	for _, command := range []string{"id", "git-upload-pack", "git-upload-pack 'a'; id", "git-upload-pack --upload-pack=id '/acme/fleet'", "git upload-archive '/acme/fleet'", "git-upload-pack '/etc'"} {
		session, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		out, err := session.Output(command)
		var exit *ssh.ExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 128 || len(out) > 0 {
			t.Errorf("%q: want exit status 128 and no output, got %v %q", command, err, out)
		}
	}
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.RequestPty("xterm", 1, 1, nil); err == nil {
		t.Error("a terminal: want an error")
	}
	if err := session.Shell(); err != nil {
		t.Fatal(err)
	}
	if err := session.Wait(); err == nil {
		t.Error("a shell: want an error")
	}
}

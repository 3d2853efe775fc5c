package gitrepo

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
)

// host is a bare repository that is served over HTTPS to one user.
type host struct {
	dir string
	ca  []byte
	url string
}

func newHost(t *testing.T) host {
	t.Helper()
	return newHostAt(t, "", "")
}

// newHostAt returns a host with the repository at a path. It refuses requests for commits without a
// capability of the protocol.
func newHostAt(t *testing.T, path, capability string) host {
	t.Helper()
	h := host{dir: filepath.Join(t.TempDir(), "repo.git")}
	run(t, "", "init", "--quiet", "--bare", "--initial-branch=main", h.dir)
	program, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: program, Args: []string{"http-backend"},
		Env: []string{
			"GIT_PROJECT_ROOT=" + h.dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=u", "PATH=" + os.Getenv("PATH"),
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "right" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			body, err := io.ReadAll(r.Body)
			if err != nil || !strings.Contains(string(body), capability) {
				http.Error(w, "the client lacks "+capability, http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		http.StripPrefix(path, backend).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	h.url = server.URL + path
	h.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return h
}

func (h host) remote(branch string) Remote {
	return Remote{URL: h.url, Branch: branch, Credentials: gitauth.Credentials{Username: "u", Password: "right", CA: h.ca}}
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func open(t *testing.T, remote Remote) *Clone {
	t.Helper()
	c, err := Open(t.Context(), remote, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// add commits one file, pushes it, and returns the error of the push.
func add(t *testing.T, c *Clone, name, content string) error {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit([]string{name}, Author{"Ada", "ada@example.com"}, "Add "+name); err != nil {
		t.Fatal(err)
	}
	return c.Push(t.Context())
}

// TestPush starts with an empty repository and pushes several commits.
func TestPush(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	first, late := open(t, h.remote("main")), open(t, h.remote("main"))
	if first.Head() != "" {
		t.Errorf("an empty repository has the commit %s", first.Head())
	}
	if err := add(t, first, "a", "1"); err != nil {
		t.Fatalf("cannot push to an empty repository: %v", err)
	}
	if err := add(t, late, "b", "1"); !errors.Is(err, ErrOutrun) {
		t.Errorf("a push over somebody's first commit: %v", err)
	}
	again, behind := open(t, h.remote("main")), open(t, h.remote("main"))
	if err := add(t, again, "a", "2"); err != nil {
		t.Fatal(err)
	}
	if err := add(t, behind, "a", "3"); !errors.Is(err, ErrOutrun) {
		t.Errorf("a push over somebody's commit: %v", err)
	}
	if err := again.Push(t.Context()); err != nil {
		t.Errorf("a push of what is there already: %v", err)
	}
	branch := open(t, h.remote("staging"))
	if diff := cmp.Diff(again.Head(), branch.Head()); diff != "" {
		t.Errorf("a new branch does not begin as the default one (-want +got):\n%s", diff)
	}
	if err := os.Remove(filepath.Join(branch.Dir, "a")); err != nil {
		t.Fatal(err)
	}
	if err := branch.Commit([]string{"a"}, Author{Name: "Ada"}, "Remove a"); err != nil {
		t.Fatal(err)
	}
	if err := add(t, branch, "c", "1"); err != nil {
		t.Fatal(err)
	}
	if got := run(t, h.dir, "ls-tree", "--name-only", "staging"); got != "c" {
		t.Errorf("the new branch has %q, want what was committed alone", got)
	}
	if got := run(t, h.dir, "log", "--format=%an %s", "main"); got != "Ada Add a\nAda Add a" {
		t.Errorf("the default branch has the history %q", got)
	}
}

// TestAzureDevOps clones and pushes at an address of Azure DevOps, which serves no client without the
// capability multi_ack.
func TestAzureDevOps(t *testing.T) {
	t.Parallel()
	h := newHostAt(t, "/acme/platform/_git/fleet", "multi_ack")
	if err := add(t, open(t, h.remote("main")), "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := add(t, open(t, h.remote("main")), "a", "2"); err != nil {
		t.Fatal(err)
	}
	if got := run(t, h.dir, "log", "--format=%s", "main"); got != "Add a\nAdd a" {
		t.Errorf("the branch has the history %q", got)
	}
}

func TestDeclined(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	hook := "#!/bin/sh\necho the branch is protected >&2\nexit 1\n"
	testprogram.Write(t, filepath.Join(h.dir, "hooks", "pre-receive"), []byte(hook))
	if err := add(t, open(t, h.remote("main")), "a", "1"); !errors.Is(err, ErrDeclined) {
		t.Errorf("a hook that refuses: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for name, tc := range map[string]struct {
		reason string
		change func(*Remote)
		want   error
	}{
		"password":  {"the wrong password", func(r *Remote) { r.Credentials.Password = "wrong" }, ErrCredentials},
		"none":      {"no credentials where some are needed", func(r *Remote) { r.Credentials.Username, r.Credentials.Password = "", "" }, ErrCredentials},
		"path":      {"no repository at the path", func(r *Remote) { r.URL += "/other/path" }, ErrNotFound},
		"host":      {"nobody listens", func(r *Remote) { r.URL = "https://127.0.0.1:1/a" }, ErrUnreachable},
		"authority": {"a certificate that nobody vouches for", func(r *Remote) { r.Credentials.CA = nil }, ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remote := h.remote("main")
			tc.change(&remote)
			if _, err := Open(t.Context(), remote, t.TempDir()); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

// TestSSH uses the host of the local cluster, at an address of this machine.
func TestSSH(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "README"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := githost.New(t.Context(), githost.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	address := "ssh://git@" + listener.Addr().String() + "/fleet"
	if err := server.Add(t.Context(), githost.Mapping{URL: address, Branch: "main", Dir: folder}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go server.ServeSSH(conn, listener.Addr().String())
		}
	}()
	key, err := gitauth.Generate(gitauth.KeyOptions{Algorithm: gitauth.Ed25519})
	if err != nil {
		t.Fatal(err)
	}
	remote := Remote{URL: address, Branch: "main", Credentials: gitauth.Credentials{Key: &key, KnownHosts: server.KnownHosts(listener.Addr().String())}}
	if err := add(t, open(t, remote), "a", "1"); err != nil {
		t.Fatalf("cannot push over SSH: %v", err)
	}
	if open(t, remote).Head() == "" {
		t.Error("what was pushed over SSH is not there")
	}
	remote.Credentials.KnownHosts = append([]byte(listener.Addr().String()+" "), key.Public...)
	if _, err := Open(t.Context(), remote, t.TempDir()); !errors.Is(err, ErrHostKey) {
		t.Errorf("a host with another key: %v", err)
	}
	remote.Credentials.KnownHosts = nil
	if _, err := Open(t.Context(), remote, t.TempDir()); !errors.Is(err, ErrHostKey) {
		t.Errorf("a host of which nothing is known: %v", err)
	}
}

// TestSSHRefused connects to a host that rejects every client.
func TestSSHRefused(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	key, err := gitauth.Generate(gitauth.KeyOptions{Algorithm: gitauth.RSA})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := key.Signer()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
				return nil, errors.New("unknown")
			}}
			config.AddHostKey(signer)
			_, _, _, _ = ssh.NewServerConn(conn, config)
			_ = conn.Close()
		}
	}()
	at := listener.Addr().String()
	remote := Remote{URL: "ssh://git@" + at + "/fleet", Branch: "main", Credentials: gitauth.Credentials{
		Key: &key, KnownHosts: append([]byte(knownhosts.Normalize(at)+" "), key.Public...),
	}}
	if _, err := Open(t.Context(), remote, t.TempDir()); !errors.Is(err, ErrCredentials) {
		t.Errorf("a key that the host does not know: %v", err)
	}
	remote.URL = "ssh://git@127.0.0.1:1/fleet"
	if _, err := Open(t.Context(), remote, t.TempDir()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("an SSH host that does not answer: %v", err)
	}
}

func TestCheckBranch(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"main": true, "a/b": true, "": false, "-x": false, "a..b": false, "a b": false, "a~1": false} {
		if err := CheckBranch(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

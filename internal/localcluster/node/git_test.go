package node

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// restrictedGit runs git in an empty repository, in the environment of a Pod's
// program.
func restrictedGit(t *testing.T, proxy string, args ...string) (string, error) {
	t.Helper()
	return gitOfContainer(t, nil, proxy, args...)
}

// gitOfContainer runs git as restrictedGit does, for a container with these variables.
func gitOfContainer(t *testing.T, vars map[string]string, proxy string, args ...string) (string, error) {
	t.Helper()
	base := t.TempDir()
	path, repository := filepath.Join(base, "git"), filepath.Join(base, "repository")
	if err := gitPath(path); err != nil {
		t.Fatal(err)
	}
	// Run it again, as after a crash.
	if err := gitPath(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(repository, 0o700); err != nil {
		t.Fatal(err)
	}
	node := []string{"http_proxy=" + proxy, "NO_PROXY=127.0.0.1,localhost"}
	env, _ := processEnv(Program{Git: true, Env: []string{gitVariable}}, vars, node, gitEnv(path, vars))
	env = append(env, "HOME="+base)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(path, "git"), args...)
		cmd.Dir, cmd.Env = repository, env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("init", "-q"); err != nil {
		t.Fatalf("git cannot even make a repository: %v\n%s", err, out)
	}
	return run(args...)
}

// repositoryWithACommit returns a new repository that git could fetch.
func repositoryWithACommit(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q"},
		{"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "begin"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	return dir
}

// TestGitIsRestricted checks that git runs no program and reads no file of the host,
// whatever addresses or options of a fleet it gets.
func TestGitIsRestricted(t *testing.T) {
	t.Parallel()
	marks := t.TempDir()
	touch, err := exec.LookPath("touch")
	if err != nil {
		t.Fatal(err)
	}
	mark := touch + " " + filepath.Join(marks, "ran")
	folder := repositoryWithACommit(t)
	for reason, args := range map[string][]string{
		"an address that is a command":              {"fetch", "ext::" + strings.ReplaceAll(mark, " ", "% ")},
		"a folder of the host":                      {"fetch", folder},
		"a folder of the host by its address":       {"fetch", "file://" + folder},
		"a command in place of the other side":      {"fetch", folder, "--upload-pack=" + mark},
		"SSH, which starts a program":               {"fetch", "ssh://git.example.com/a/b"},
		"SSH in its short form":                     {"fetch", "git@git.example.com:a/b"},
		"git's own protocol, which knows no proxy":  {"fetch", "git://127.0.0.1:1/a/b"},
		"a helper for other protocols, such as ftp": {"fetch", "ftp://127.0.0.1:1/a/b"},
		"a submodule that is a command":             {"submodule", "add", "ext::" + strings.ReplaceAll(mark, " ", "% "), "sub"},
		"a submodule that is a folder of the host":  {"submodule", "add", "file://" + folder, "sub"},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			if out, err := restrictedGit(t, "http://127.0.0.1:1", args...); err == nil {
				t.Errorf("%s: git did it:\n%s", reason, out)
			} else {
				t.Logf("%s", out)
			}
			if entries, err := os.ReadDir(marks); err != nil || len(entries) > 0 {
				t.Errorf("%s: a program of the fleet's choice ran (%v)", reason, err)
			}
		})
	}
}

// TestProtocolsOfGit checks that git keeps to the fleet's list of protocols, that it would use SSH without a list, as on
// a cluster, and that no list opens a protocol that is closed here.
func TestProtocolsOfGit(t *testing.T) {
	t.Parallel()
	folder := repositoryWithACommit(t)
	for _, tc := range []struct {
		reason  string
		vars    map[string]string
		address string
		want    string
	}{
		{"no list", nil, "ssh://git@git.example.com:2222/a/b", NoSSH},
		{"no list, in the short form", nil, "git@git.example.com:a/b", NoSSH},
		{"a list with SSH", map[string]string{gitVariable: "ssh:https"}, "ssh://git@git.example.com/a/b", NoSSH},
		{"a list without SSH", map[string]string{gitVariable: "http:https"}, "ssh://git@git.example.com/a/b", "transport 'ssh' not allowed"},
		{"an empty list", map[string]string{gitVariable: ""}, "ssh://git@git.example.com/a/b", "transport 'ssh' not allowed"},
		{"a list without HTTP", map[string]string{gitVariable: "ssh"}, "https://git.example.com/a/b", "transport 'https' not allowed"},
		{"a list with folders of the host", map[string]string{gitVariable: "file:ext:git"}, "file://" + folder, "transport 'file' not allowed"},
		{"a command in the variables", map[string]string{"GIT_SSH_COMMAND": "echo done; true", "GIT_SSH": "true"}, "ssh://git@git.example.com/a/b", NoSSH},
	} {
		if out, err := gitOfContainer(t, tc.vars, "http://127.0.0.1:1", "fetch", tc.address); err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s: git says %q (%v), want %q", tc.reason, out, err, tc.want)
		}
	}
}

// TestGitDoesNotAskLoopback checks that git reaches loopback only through the proxy,
// which refuses it, although the node's environment excludes loopback from the
// proxy.
func TestGitDoesNotAskLoopback(t *testing.T) {
	t.Parallel()
	var asked, proxied atomic.Int32
	listener := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer listener.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		proxied.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer proxy.Close()
	if out, err := restrictedGit(t, proxy.URL, "fetch", listener.URL+"/a/b"); err == nil {
		t.Errorf("git fetched from loopback:\n%s", out)
	}
	if asked.Load() > 0 || proxied.Load() == 0 {
		t.Errorf("the listener was asked %d times, the proxy %d times", asked.Load(), proxied.Load())
	}
}

// TestGitHasWhatItNeeds checks that git's scripts find their programs: kustomize
// always updates submodules.
func TestGitHasWhatItNeeds(t *testing.T) {
	t.Parallel()
	if out, err := restrictedGit(t, "", "submodule", "update", "--init", "--recursive"); err != nil {
		t.Errorf("git cannot look for submodules: %v\n%s", err, out)
	} else if out != "" {
		t.Errorf("git misses something: %s", out)
	}
}

func TestOnlyKustomizeControllerHasPrograms(t *testing.T) {
	t.Parallel()
	var with []string
	for _, p := range FluxPrograms("bin") {
		if p.Git || p.GPG {
			with = append(with, p.Name)
		}
	}
	if diff := cmp.Diff([]string{"kustomize-controller"}, with); diff != "" {
		t.Errorf("programs that run others: -want, +got:\n%s", diff)
	}
	env, _ := processEnv(Program{}, map[string]string{"PATH": "/evil"}, nil, nil)
	if slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, "PATH=") }) {
		t.Errorf("a program without git has a PATH: %q", env)
	}
}

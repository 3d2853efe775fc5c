package githost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNoGit says that git, or the part of it that serves HTTP, is not installed.
var ErrNoGit = errors.New("git is not installed")

// The oldest git that reads its configuration from the environment alone
// (GIT_CONFIG_COUNT 2.31, GIT_CONFIG_GLOBAL 2.32). An older one would silently
// obey the user's configuration, and with it filters and credential helpers.
const minMajor, minMinor = 2, 32

// git runs the git program with nothing but our own configuration.
type git struct {
	program string
	env     []string
}

// settings apply to every git process. They are set in the environment, which
// beats every file and reaches the processes that git itself starts.
var settings = [][2]string{
	{"safe.directory", "*"}, // only repositories of ours are opened for writing
	{"core.fsmonitor", "false"},
	{"core.hooksPath", os.DevNull},
	{"core.alternateRefsCommand", "true"}, // or receive-pack looks into the user's repository
	{"core.excludesFile", os.DevNull},
	{"core.attributesFile", os.DevNull},
	{"core.autocrlf", "false"},
	{"core.untrackedCache", "false"},
	{"core.splitIndex", "false"},
	{"index.sparse", "false"},
	{"core.fsync", "none"}, // all that we write can be made again
	{"core.pager", "cat"},
	{"core.sshCommand", "false"},
	{"credential.helper", ""},
	{"commit.gpgSign", "false"},
	{"submodule.recurse", "false"},
	{"protocol.allow", "never"},
	{"gc.auto", "0"},
	{"maintenance.auto", "false"},
	{"receive.autogc", "false"},
	{"receive.unpackLimit", "1"}, // a pack is kept whole: unpacking may touch borrowed objects
	{"http.receivepack", "true"},
	{"http.getanyfile", "false"},
	// As on the large hosts: a commit can be asked for by its ID if some
	// branch or tag leads to it.
	{"uploadpack.allowTipSHA1InWant", "true"},
	{"uploadpack.allowReachableSHA1InWant", "true"},
}

// newGit finds git and checks that it is one that we can keep in bounds. home is
// an empty folder that stands for the user's.
func newGit(ctx context.Context, home string) (*git, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("cannot serve repositories: %w: install git %d.%d or newer and see that it is in PATH", ErrNoGit, minMajor, minMinor)
	}
	g := &git{program: program, env: baseEnv(home)}
	out, err := g.run(ctx, call{args: []string{"version"}})
	if err != nil {
		return nil, fmt.Errorf("cannot ask git for its version: %w", err)
	}
	if version := strings.TrimSpace(strings.TrimPrefix(out, "git version ")); !recentEnough(version) {
		return nil, fmt.Errorf("cannot serve repositories with git %s: install git %d.%d or newer", version, minMajor, minMinor)
	}
	folder, err := g.run(ctx, call{args: []string{"--exec-path"}})
	if err != nil {
		return nil, fmt.Errorf("cannot ask git for its programs: %w", err)
	}
	if _, err := os.Stat(filepath.Join(strings.TrimSpace(folder), "git-http-backend")); err != nil {
		return nil, fmt.Errorf("cannot serve repositories: %w with http-backend: some distributions have it in a package called git-daemon", ErrNoGit)
	}
	return g, nil
}

func recentEnough(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major > minMajor || major == minMajor && minor >= minMinor)
}

func baseEnv(home string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + home,
		"XDG_CONFIG_HOME=" + home,
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=" + os.DevNull,
		"GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=false",
		"GIT_SSH_COMMAND=false",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_ALLOW_PROTOCOL=none", // no protocol of that name: nothing is ever fetched
		"GIT_NO_LAZY_FETCH=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_PAGER=cat",
		"GIT_EDITOR=false",
		"GIT_CONFIG_COUNT=" + strconv.Itoa(len(settings)),
	}
	for i, s := range settings {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s[1]))
	}
	return env
}

// call is one run of git.
type call struct {
	args  []string
	env   []string // beside the base environment
	dir   string
	stdin io.Reader
	// strict makes a folder that git could not read an error. git itself
	// only warns, and the files in it would be missing without a word.
	strict bool
}

// run returns what git prints. The error holds what git complained about.
func (g *git) run(ctx context.Context, c call) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := g.command(ctx, c)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if said := lastLines(stderr.String(), 3); said != "" {
			return "", fmt.Errorf("git %s: %s (%w)", c.args[0], said, err)
		}
		return "", fmt.Errorf("git %s: %w", c.args[0], err)
	}
	if said := stderr.String(); c.strict && strings.Contains(said, "could not open directory") {
		return "", fmt.Errorf("git %s: %s", c.args[0], lastLines(said, 3))
	}
	return stdout.String(), nil
}

func (g *git) command(ctx context.Context, c call) *exec.Cmd {
	cmd := exec.CommandContext(ctx, g.program, c.args...)
	cmd.Env = append(append([]string{}, g.env...), c.env...)
	cmd.Dir = c.dir
	cmd.Stdin = c.stdin
	// Asked to end, git takes its locks with it; killed, it leaves them.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	// A grandchild may keep the pipes open after git is gone.
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

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

// ErrNoGit reports that git, or its program that serves HTTP, is not installed.
var ErrNoGit = errors.New("git is not installed")

// The oldest supported git reads its whole configuration from the environment
// (GIT_CONFIG_COUNT 2.31, GIT_CONFIG_GLOBAL 2.32). An older git would silently use
// the user's configuration, with its filters and credential helpers.
const minMajor, minMinor = 2, 32

// git runs the git program with our configuration alone.
type git struct {
	program string
	env     []string
}

// settings apply to every git process. They are set in the environment, which
// overrides every file and reaches the processes that git itself starts.
var settings = [][2]string{
	{"safe.directory", "*"}, // git writes only to our own repositories
	{"core.fsmonitor", "false"},
	{"core.hooksPath", os.DevNull},
	{"core.alternateRefsCommand", "true"}, // otherwise receive-pack reads the user's repository
	{"core.excludesFile", os.DevNull},
	{"core.attributesFile", os.DevNull},
	{"core.autocrlf", "false"},
	{"core.untrackedCache", "false"},
	{"core.splitIndex", "false"},
	{"index.sparse", "false"},
	{"core.fsync", "none"}, // we can create again all that we write
	{"core.pager", "cat"},
	{"core.sshCommand", "false"},
	{"credential.helper", ""},
	{"commit.gpgSign", "false"},
	{"submodule.recurse", "false"},
	{"protocol.allow", "never"},
	{"gc.auto", "0"},
	{"maintenance.auto", "false"},
	{"receive.autogc", "false"},
	{"receive.unpackLimit", "1"}, // keep packs whole: unpacking may touch borrowed objects
	{"http.receivepack", "true"},
	{"http.getanyfile", "false"},
	// As on the large hosts, clients can fetch a commit by its ID if a branch or tag
	// leads to it.
	{"uploadpack.allowTipSHA1InWant", "true"},
	{"uploadpack.allowReachableSHA1InWant", "true"},
}

// newGit finds git and checks that its version supports our settings. home is an
// empty folder that replaces the user's home.
func newGit(ctx context.Context, home string) (*git, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("cannot serve repositories: %w: install git %d.%d or newer and see that it is in PATH", ErrNoGit, minMajor, minMinor)
	}
	g := &git{program: program, env: baseEnv(home)}
	out, err := g.run(ctx, call{args: []string{"version"}})
	if err != nil {
		return nil, fmt.Errorf("cannot read the version of git: %w", err)
	}
	if version := strings.TrimSpace(strings.TrimPrefix(out, "git version ")); !recentEnough(version) {
		return nil, fmt.Errorf("cannot serve repositories with git %s: install git %d.%d or newer", version, minMajor, minMinor)
	}
	folder, err := g.run(ctx, call{args: []string{"--exec-path"}})
	if err != nil {
		return nil, fmt.Errorf("cannot find the programs of git: %w", err)
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
		"GIT_ALLOW_PROTOCOL=none", // no such protocol exists, so git never fetches
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
	env   []string // in addition to the base environment
	dir   string
	stdin io.Reader
	// strict turns a folder that git cannot read into an error. git itself only
	// warns, and would silently leave out the files in the folder.
	strict bool
}

// run returns git's standard output. The error contains the last lines of git's
// standard error.
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
	// git removes its locks after SIGTERM, but not when it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	// A child of git may keep the pipes open after git has ended.
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/internal/ui"
)

// stopTimeout is the time between the interrupt of a build and its end.
const stopTimeout = 10 * time.Second

// sources matches the go.mod of Tenure's repository.
var sources = regexp.MustCompile(`(?m)^module github\.com/tenure-dev/tenure$`)

// errNoSources reports that there is nothing to compile.
var errNoSources = errors.New("cannot build the programs: neither tenure nor the working folder is in a clone of Tenure's repository")

// build runs `make build` in the clone that has own, the folder of the running program, or else the
// working folder. It returns the clone's folder of programs. Make compiles only what is missing or has
// changed, and its output goes to log.
func build(ctx context.Context, own string, log io.Writer) (string, error) {
	working, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot build the programs: %w", err)
	}
	root := clone(own, working)
	if root == "" {
		return "", ui.WithHint(errNoSources, "run it in a clone, or leave out --build: a released tenure fetches its programs, and --programs names others")
	}
	cmd := exec.CommandContext(ctx, "make", "-C", root, "build")
	cmd.Stdout, cmd.Stderr = log, log
	// Make does not pass an interrupt on, so that it goes to the whole group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel, cmd.WaitDelay = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }, stopTimeout
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("cannot build the programs in %s: make build: %w", root, err)
	}
	return filepath.Join(root, "bin"), nil
}

// clone returns the first of the folders or of their parents that is the root of Tenure's repository,
// or "".
func clone(folders ...string) string {
	for _, dir := range folders {
		for last := ""; dir != last; last, dir = dir, filepath.Dir(dir) {
			if content, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && sources.Match(content) {
				return dir
			}
		}
	}
	return ""
}

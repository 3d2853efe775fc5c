package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxSize is the maximum compressed size of an image for one architecture, in bytes.
const maxSize = 30_000_000

// stopTimeout is the time between an interrupt of the go command and SIGKILL.
const stopTimeout = 5 * time.Second

// built is an image for one or more architectures.
type built struct {
	index     v1.ImageIndex
	digest    v1.Hash
	platforms []platform
}

// platform is the image for one architecture.
type platform struct {
	arch   string
	image  v1.Image
	digest v1.Hash
	size   int64 // of the layer, compressed
	info   *buildinfo.BuildInfo
}

// build compiles the program and returns the image.
func (s *source) build(ctx context.Context, log io.Writer) (*built, error) {
	tmp, err := os.MkdirTemp("", "tenure-image-")
	if err != nil {
		return nil, fmt.Errorf("cannot build the image: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	programs := map[string][]byte{}
	for _, arch := range s.architectures {
		began := time.Now()
		fmt.Fprintf(log, "compiling %s for linux/%s (with a cold cache some minutes)\n", s.program, arch)
		file := filepath.Join(tmp, s.program+"-"+arch)
		if err := s.compile(ctx, "linux", arch, file); err != nil {
			return nil, fmt.Errorf("cannot build %s for linux/%s: %w", s.program, arch, err)
		}
		if programs[arch], err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("cannot read the program: %w", err)
		}
		fmt.Fprintf(log, "compiled after %.0f s\n", time.Since(began).Seconds())
	}
	return s.assemble(programs)
}

// compile compiles the program. Its bytes do not depend on the folder, the machine or
// the settings of the go command.
func (s *source) compile(ctx context.Context, system, arch, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+s.ldflags(), "-o", file, s.pkg)
	cmd.Dir, cmd.Env = s.root, environment(system, arch)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	// The compilers are children of the go command: all of them get the signal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// check prints the sizes, and returns an error if one is above the bound.
func (b *built) check(log io.Writer) error {
	for _, p := range b.platforms {
		fmt.Fprintf(log, "linux/%s: %.1f MB compressed, of at most %d MB\n", p.arch, float64(p.size)/1e6, maxSize/1_000_000)
		if p.size > maxSize {
			return fmt.Errorf("the image for linux/%s has %d bytes, more than %d: look for the new dependency in the list of contents", p.arch, p.size, maxSize)
		}
	}
	return nil
}

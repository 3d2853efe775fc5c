package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is how long the go command may take to end after an interrupt,
// before it is killed.
const stopTimeout = 5 * time.Second

// builder is what builds of all programs have in common.
type builder struct {
	root     string
	bin      string // absolute
	stamp    string // flags of the linker for Tenure's own programs
	progress *progress
}

// build makes one program.
func build(ctx context.Context, b builder, p program) error {
	b.progress.start()
	err := b.build(ctx, p)
	b.progress.finish(err)
	if err != nil {
		return fmt.Errorf("cannot build %s: %w", p.name, err)
	}
	return nil
}

func (b builder) build(ctx context.Context, p program) error {
	// In the target's own folder, so that the rename cannot cross file systems.
	tmp, err := os.MkdirTemp(b.bin, ".build-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	dir, err := b.sources(ctx, p, tmp)
	if err != nil {
		return err
	}
	stale, err := b.stale(ctx, p, dir)
	if err != nil {
		return err
	}
	b.progress.compile(stale)
	flags, err := p.ldflags(b.root)
	if err != nil {
		return err
	}
	file := filepath.Join(tmp, p.name)
	// Version control stamps would make the go command link again after every
	// commit, and only Tenure's own program has a use for them.
	vcs := "-buildvcs=false"
	if p.module == "." {
		vcs = "-buildvcs=auto"
		flags += b.stamp
	}
	if err := b.goCommand(ctx, dir, func(string) {}, "build", "-v", vcs, "-ldflags="+flags, "-o", file, p.pkg); err != nil {
		return err
	}
	if err := os.Rename(file, filepath.Join(b.bin, p.name)); err != nil {
		return err
	}
	for _, link := range p.links {
		if err := symlink(p.name, filepath.Join(b.bin, link)); err != nil {
			return err
		}
	}
	return nil
}

// sources returns the folder in which the go command builds the program: its
// module's, or a copy in tmp where a file has to be added.
func (b builder) sources(ctx context.Context, p program, tmp string) (string, error) {
	module := filepath.Join(b.root, p.module)
	if p.embeds == "" {
		if strings.HasPrefix(p.pkg, "./") {
			_, err := os.Stat(filepath.Join(module, p.pkg))
			return module, err
		}
		return module, nil
	}
	var text strings.Builder
	if err := b.goCommand(ctx, module, func(line string) { text.WriteString(line) }, "mod", "download", "-json", p.release); err != nil {
		return "", err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal([]byte(text.String()), &downloaded); err != nil || downloaded.Dir == "" {
		return "", fmt.Errorf("cannot find the sources of %s: the go command said %q", p.release, text.String())
	}
	dir := filepath.Join(tmp, "sources")
	if err := os.CopyFS(dir, os.DirFS(downloaded.Dir)); err != nil {
		return "", err
	}
	file := filepath.Join(dir, p.embeds)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return "", err
	}
	return dir, os.WriteFile(file, nil, 0o600)
}

// stale returns how many packages of the program have to be compiled. The main
// package is left out: it counts as stale whenever the program has to be linked,
// compiled or not.
func (b builder) stale(ctx context.Context, p program, dir string) (int, error) {
	count := 0
	counter := func(line string) {
		if line != "" {
			count++
		}
	}
	err := b.goCommand(ctx, dir, counter, "list", "-deps", "-f", `{{if and .Stale (ne .Name "main")}}{{.ImportPath}}{{end}}`, p.pkg)
	return count, err
}

// goCommand runs the go command in the folder of a module. Each line of its
// standard output goes to out. Each line of its standard error goes to the
// progress; what that does not understand becomes the text of the error.
func (b builder) goCommand(ctx context.Context, dir string, out func(string), args ...string) error {
	var said []string
	stdout := &lineWriter{line: out}
	stderr := &lineWriter{line: func(line string) {
		if !b.progress.line(line) {
			said = append(said, line)
		}
	}}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// Its compilers are its children: all get the signal, wherever Ctrl-C or
	// a kill was aimed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	err := cmd.Run()
	stdout.flush()
	stderr.flush()
	if err != nil {
		return explain(err, said)
	}
	return nil
}

// lineWriter hands what is written to it on, line by line.
type lineWriter struct {
	line func(string)
	rest []byte
}

func (w *lineWriter) Write(text []byte) (int, error) {
	w.rest = append(w.rest, text...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(text), nil
		}
		w.line(string(line))
		w.rest = rest
	}
}

// flush hands on a last line that has no end.
func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.line(string(w.rest))
		w.rest = nil
	}
}

// explain adds what the go command said, and a way out where there is one.
func explain(err error, said []string) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w (install Go 1.26: https://go.dev/dl)", err)
	}
	text := strings.Join(said, "\n")
	hint := ""
	switch {
	case strings.Contains(text, "no space left on device"):
		hint = "\n(the disk is full: `go env GOCACHE GOTMPDIR` says where the go command writes; a first build needs about 12 GB)"
	case strings.Contains(text, "executable file not found") && strings.Contains(text, "git"):
		hint = "\n(install git: the go command fetches some modules with it)"
	case strings.Contains(text, "dial tcp") || strings.Contains(text, "no such host") || strings.Contains(text, "TLS handshake timeout"):
		hint = "\n(modules could not be downloaded: check the network, or `go env GOPROXY`)"
	case strings.Contains(text, "signal: killed"):
		hint = "\n(the compiler was killed, most likely for lack of memory: try GOFLAGS=-p=1)"
	}
	if text == "" {
		return err
	}
	return fmt.Errorf("%w\n%s%s", err, text, hint)
}

// symlink makes or replaces a symbolic link.
func symlink(target, name string) error {
	if old, err := os.Readlink(name); err == nil && old == target {
		return nil
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(target, name)
}

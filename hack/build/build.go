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
	"regexp"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is the time between an interrupt of the go command and SIGKILL.
const stopTimeout = 5 * time.Second

// builder holds the settings that the builds of all programs share.
type builder struct {
	root     string
	bin      string // absolute
	stamp    string // flags of the linker for Tenure's own programs
	progress *progress
}

// build builds one program.
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
	// A version control stamp would make the go command link again after every commit; only
	// Tenure's own programs use the stamp.
	vcs := "-buildvcs=false"
	if p.module == "." {
		vcs = "-buildvcs=auto"
		flags += b.stamp
	}
	args := append([]string{"build", "-v"}, p.buildFlags()...)
	if err := b.goCommand(ctx, dir, func(string) {}, append(args, vcs, "-ldflags="+flags, "-o", file, p.pkg)...); err != nil {
		return err
	}
	if p.folder != "" {
		if err := b.copyFolder(ctx, p, tmp); err != nil {
			return err
		}
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

// joined is the build tag of a main package that imports other programs, which only hack/build can
// compile.
const joined = "joined"

// buildFlags returns the flags of the go command that decide what a program is built of.
func (p program) buildFlags() []string {
	switch {
	case p.modfile != "":
		return []string{"-modfile=" + p.modfile}
	case len(p.joins) > 0:
		return []string{"-tags=" + joined}
	}
	return nil
}

// sources returns the folder in which the go command builds the program: the folder of its
// module, or a copy in tmp if a file has to be added or changed.
func (b builder) sources(ctx context.Context, p program, tmp string) (string, error) {
	module := filepath.Join(b.root, p.module)
	if len(p.joins) > 0 {
		return tmp, b.join(ctx, p, tmp)
	}
	if p.embeds == "" {
		if strings.HasPrefix(p.pkg, "./") {
			_, err := os.Stat(filepath.Join(module, p.pkg))
			return module, err
		}
		return module, nil
	}
	published, err := b.published(ctx, p, p.release)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(tmp, replacement)
	if err := os.CopyFS(dir, os.DirFS(published)); err != nil {
		return "", err
	}
	file := filepath.Join(dir, p.embeds)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return "", err
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil || p.folder == "" {
		return dir, err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(tmp, name), content, 0o600); err != nil {
			return "", err
		}
	}
	return tmp, b.goCommand(ctx, tmp, func(string) {}, "mod", "edit", "-replace", p.release+"=./"+replacement)
}

// join copies the files of the program's module to a folder, and the modules that it joins to
// folders in it, as packages that can be imported.
func (b builder) join(ctx context.Context, p program, tmp string) error {
	if err := os.CopyFS(tmp, os.DirFS(filepath.Join(b.root, p.module))); err != nil {
		return err
	}
	edit := []string{"mod", "edit"}
	for _, from := range p.joins {
		published, err := b.published(ctx, p, from.module)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(from.module, flux)
		dir := filepath.Join(tmp, name)
		if err := os.CopyFS(dir, os.DirFS(published)); err != nil {
			return err
		}
		if err := importable(filepath.Join(dir, from.folder, "main.go")); err != nil {
			return fmt.Errorf("cannot join %s: %w", from.module, err)
		}
		edit = append(edit, "-replace", from.module+"=./"+name)
	}
	return b.goCommand(ctx, tmp, func(string) {}, edit...)
}

// importable makes the file with the function main of a program a file of the package controller
// with a function Main.
func importable(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, change := range []struct{ from, to string }{{"package main", "package controller"}, {"func main() {", "func Main() {"}} {
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(change.from) + `$`)
		if n := len(line.FindAll(content, -1)); n != 1 {
			return fmt.Errorf("%s has %d lines %q, not one", filepath.Base(file), n, change.from)
		}
		content = line.ReplaceAll(content, []byte(change.to))
	}
	return os.WriteFile(file, content, 0o600)
}

// published returns the folder of the module cache with the sources of a module, at the version
// that the program's module requires.
func (b builder) published(ctx context.Context, p program, module string) (string, error) {
	var text strings.Builder
	if err := b.goCommand(ctx, filepath.Join(b.root, p.module), func(line string) { text.WriteString(line) }, "mod", "download", "-json", module); err != nil {
		return "", err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal([]byte(text.String()), &downloaded); err != nil || downloaded.Dir == "" {
		return "", fmt.Errorf("cannot find the sources of %s: the go command said %q", module, text.String())
	}
	return downloaded.Dir, nil
}

// replacement is the name of the folder with the copy of a module.
const replacement = "sources"

// copyFolder replaces the folder p.copies in bin by the folder p.folder of the sources and their
// licence.
func (b builder) copyFolder(ctx context.Context, p program, tmp string) error {
	sources, err := b.published(ctx, p, p.release)
	if err != nil {
		return err
	}
	made := filepath.Join(tmp, "folder")
	if err := os.CopyFS(made, os.DirFS(filepath.Join(sources, p.folder))); err != nil {
		return err
	}
	licence, err := os.ReadFile(filepath.Join(sources, "LICENSE"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(made, "LICENSE"), licence, 0o600); err != nil {
		return err
	}
	to := filepath.Join(b.bin, p.copies)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(made, to)
}

// stale returns the number of packages that have to be compiled for the program. It leaves out
// the main package, which is stale whenever the program has to be linked.
func (b builder) stale(ctx context.Context, p program, dir string) (int, error) {
	count := 0
	counter := func(line string) {
		if line != "" {
			count++
		}
	}
	args := append([]string{"list", "-deps"}, p.buildFlags()...)
	err := b.goCommand(ctx, dir, counter, append(args, "-f", `{{if and .Stale (ne .Name "main")}}{{.ImportPath}}{{end}}`, p.pkg)...)
	return count, err
}

// goCommand runs the go command in the folder of a module. Each line of its standard output
// goes to out. Each line of its standard error goes to the progress; lines that the progress
// does not understand become the text of the error.
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
	// The compilers are children of the go command: all of them get the signal, whichever process
	// Ctrl-C or kill was sent to.
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

// lineWriter passes each written line to a function.
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

// explain adds the output of the go command to an error, and a hint if there is one.
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

// symlink creates or replaces a symbolic link.
func symlink(target, name string) error {
	if old, err := os.Readlink(name); err == nil && old == target {
		return nil
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(target, name)
}

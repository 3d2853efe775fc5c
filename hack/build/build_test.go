package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
)

func TestRequirement(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		gomod  string
		want   string
		err    string
	}{
		"InBlock": {
			reason: "The usual form.",
			gomod:  "module m\n\nrequire (\n\tk8s.io/api v0.36.3\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n",
			want:   "v1.36.3",
		},
		"Alone": {
			reason: "The form of a single requirement.",
			gomod:  "module m\nrequire k8s.io/kubernetes v1.36.3\n",
			want:   "v1.36.3",
		},
		"Other": {
			reason: "A module whose name only begins alike is another one.",
			gomod:  "require k8s.io/kubernetes/more v1.36.3\n",
			err:    "the module is not required there",
		},
		"PreRelease": {
			reason: "A server must not claim a release that it is not.",
			gomod:  "require k8s.io/kubernetes v1.37.0-alpha.1\n",
			err:    "v1.37.0-alpha.1 is not a release",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := requirement(tc.gomod, "k8s.io/kubernetes")
			if diff := cmp.Diff(tc.err, text(err)); diff != "" {
				t.Fatalf("%s\nrequirement(): error: -want, +got:\n%s", tc.reason, diff)
			}
			if got != tc.want {
				t.Errorf("%s\nrequirement(): want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

// TestVersion reads the version from the real go.mod.
func TestVersion(t *testing.T) {
	t.Parallel()
	chosen, err := selected([]string{"tenure-cluster"})
	if err != nil {
		t.Fatal(err)
	}
	flags, err := chosen[0].ldflags("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-X k8s.io/component-base/version.gitVersion=v1.", "-X k8s.io/client-go/pkg/version.gitMajor=1 "} {
		if !strings.Contains(flags, want) {
			t.Errorf("without %s the program reports no version of Kubernetes: %s", want, flags)
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	began := time.Unix(0, 0)
	steps := ui.NewSteps(&ui.Screen{Writer: io.Discard})
	defer steps.Close()
	p := &progress{name: "x", step: steps.Start("x"), total: -1, began: began, now: func() time.Time { return began.Add(3 * time.Second) }}
	cases := []struct {
		reason string
		do     func() bool
		used   bool
		want   string
	}{
		{"Nothing is known at first.", func() bool { return true }, true, "looking for what is to be built"},
		{"Downloads come before anything can be counted.", func() bool { return p.line("go: downloading example.com/m v1.0.0") }, true, "modules downloaded: 1"},
		{"Then the packages are counted.", func() bool { p.compile(2); return true }, true, "2 of 2 packages left"},
		{"A package's path is one package less.", func() bool { return p.line("example.com/m/pkg") }, true, "1 of 2 packages left"},
		{"An error of the compiler is for the user.", func() bool { return p.line("pkg/x.go:1:2: undefined: y") }, false, "1 of 2 packages left"},
		{"So is its heading.", func() bool { return p.line("# example.com/m/pkg") }, false, "1 of 2 packages left"},
		{"After the last package comes the link.", func() bool { return p.line("runtime") }, true, "the last packages, and linking"},
		{"More packages than counted are no negative rest.", func() bool { return p.line("example.com/m") }, true, "the last packages, and linking"},
	}
	for _, s := range cases {
		if used := s.do(); used != s.used {
			t.Errorf("%s: the line was taken as progress: %v", s.reason, used)
		}
		if got := p.state(); got != s.want {
			t.Errorf("%s: want %q, got %q", s.reason, s.want, got)
		}
	}
	if got, want := p.report(), "  x 3s the last packages, and linking\n"; got != want {
		t.Errorf("the line in a log: want %q, got %q", want, got)
	}
}

func FuzzLineWriter(f *testing.F) {
	f.Add("one\ntwo", 2)
	f.Add("\n\n", 1)
	f.Fuzz(func(t *testing.T, text string, chunk int) {
		chunk = max(chunk, 1)
		var got []string
		w := &lineWriter{line: func(line string) { got = append(got, line) }}
		for rest := []byte(text); len(rest) > 0; {
			n := min(chunk, len(rest))
			if wrote, err := w.Write(rest[:n]); wrote != n || err != nil {
				t.Fatalf("Write() = %d, %v", wrote, err)
			}
			rest = rest[n:]
		}
		w.flush()
		if joined := strings.Join(got, "\n"); joined != strings.TrimSuffix(text, "\n") {
			t.Errorf("the lines of %q in pieces of %d are %q", text, chunk, got)
		}
	})
}

func TestExplain(t *testing.T) {
	t.Parallel()
	failed := errors.New("exit status 1")
	for said, want := range map[string]string{
		"write /x: no space left on device":                     "the disk is full",
		`exec: "git": executable file not found in $PATH`:       "install git",
		"dial tcp: lookup modules.example.com: no such host":    "modules could not be downloaded",
		"compile: signal: killed":                               "lack of memory",
		"pkg/x.go:1:2: undefined: y":                            "undefined: y",
		"go: go.mod requires go >= 1.26.0 (running go 1.22.12)": "requires go >= 1.26.0",
	} {
		if got := explain(failed, []string{said}); !errors.Is(got, failed) || !strings.Contains(got.Error(), want) || !strings.Contains(got.Error(), said) {
			t.Errorf("explain(%q): want the cause, what was said and %q, got %q", said, want, got)
		}
	}
}

// TestRun builds with a stand-in for the go command.
func TestRun(t *testing.T) {
	cases := map[string]struct {
		reason string
		script string // script of the fake `go build`; $out is the file to write
		code   int
		out    string
		errOut string
		bin    map[string]string // name → content afterwards of files that were "old"
	}{
		"Built": {
			reason: "The new program takes the old one's place, under every name.",
			script: `echo new > "$out"`,
			out:    "✓ tenure-cluster",
			bin:    map[string]string{"tenure-cluster": "new\n", "kubectl": "new\n"},
		},
		"Failed": {
			reason: "A failed build leaves the old program alone, and nothing half-written.",
			script: `echo half > "$out"; echo "link: write x: no space left on device" >&2; exit 1`,
			code:   1,
			out:    "✗ tenure-cluster: not built",
			errOut: "the disk is full",
			bin:    map[string]string{"tenure-cluster": "old\n"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root := sources(t, tc.script)
			out, err := os.Create(filepath.Join(root, "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			var errOut bytes.Buffer
			if code := run(t.Context(), []string{"-C", root, "tenure-cluster"}, out, &errOut); code != tc.code {
				t.Errorf("%s\nrun(): want %d, got %d: %s", tc.reason, tc.code, code, &errOut)
			}
			shown, err := os.ReadFile(out.Name())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(shown), tc.out) || !strings.Contains(errOut.String(), tc.errOut) {
				t.Errorf("%s\nrun(): want %q and %q, got %q and %q", tc.reason, tc.out, tc.errOut, shown, &errOut)
			}
			if diff := cmp.Diff(tc.bin, contents(t, filepath.Join(root, "bin"))); diff != "" {
				t.Errorf("%s\nthe folder of programs: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRunInterrupted interrupts a build that would never end, and checks for leftover files
// and processes.
func TestRunInterrupted(t *testing.T) {
	root := sources(t, `touch "$root/building"; exec tail -f "$root/never"`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(root, "building")); err == nil {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	out, err := os.Create(filepath.Join(root, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var errOut bytes.Buffer
	if code := run(ctx, []string{"-C", root, "tenure-cluster"}, out, &errOut); code != 130 {
		t.Errorf("run(): an interrupted build ends with 130, got %d: %s", code, &errOut)
	}
	if diff := cmp.Diff(map[string]string{"tenure-cluster": "old\n"}, contents(t, filepath.Join(root, "bin"))); diff != "" {
		t.Errorf("the folder of programs after an interrupt: -want, +got:\n%s", diff)
	}
}

// TestRunCopied builds a program whose module lacks an embedded file.
func TestRunCopied(t *testing.T) {
	root := sources(t, `cat main.go cmd/flux/manifests/none.yaml > "$out" && pwd >> "$out"`)
	var errOut bytes.Buffer
	if code := run(t.Context(), []string{"-C", root, "flux"}, os.Stdout, &errOut); code != 0 {
		t.Fatalf("run(): want 0, got %d: %s", code, &errOut)
	}
	built, in, _ := strings.Cut(contents(t, filepath.Join(root, "bin"))["flux"], "\n")
	if built != "package main" || !strings.Contains(in, filepath.Join(root, "bin", ".build-")) {
		t.Errorf("it was built of %q in %q, not in a copy that has the file", built, in)
	}
	if _, err := os.Stat(filepath.Join(root, "module", "cmd")); err == nil {
		t.Error("the module's own folder was changed")
	}
	chosen, err := selected([]string{"flux"})
	if err != nil {
		t.Fatal(err)
	}
	flags, err := chosen[0].ldflags(root)
	if err != nil || !strings.HasSuffix(flags, " -X main.VERSION=2.9.5") {
		t.Errorf("the version comes from %q, %v", flags, err)
	}
}

// TestRunReplaced builds a program in the module that pins it, from a copy of its own module
// with the missing file, and copies a folder of that module.
func TestRunReplaced(t *testing.T) {
	root := sources(t, `cat go.mod sources/web/dist/index.html > "$out"`)
	var errOut bytes.Buffer
	if code := run(t.Context(), []string{"-C", root, "flux-operator"}, os.Stdout, &errOut); code != 0 {
		t.Fatalf("run(): want 0, got %d: %s", code, &errOut)
	}
	built, err := os.ReadFile(filepath.Join(root, "bin", "flux-operator"))
	if err != nil || !strings.Contains(string(built), "flux-operator v0.58.0") {
		t.Errorf("it was built with %q, not with the go.mod that pins it", built)
	}
	copied := contents(t, filepath.Join(root, "bin", "flux-operator-config"))
	if diff := cmp.Diff(map[string]string{"LICENSE": "AGPL", "crd.yaml": "crd"}, copied); diff != "" {
		t.Errorf("the copied folder (-want +got):\n%s", diff)
	}
}

// TestRunFolder builds a program as it was published, with its version, and copies a folder of
// its module.
func TestRunFolder(t *testing.T) {
	root := sources(t, `echo "$all" >"$out"`)
	var errOut bytes.Buffer
	if code := run(t.Context(), []string{"-C", root, "kyverno"}, os.Stdout, &errOut); code != 0 {
		t.Fatalf("run(): want 0, got %d: %s", code, &errOut)
	}
	built, err := os.ReadFile(filepath.Join(root, "bin", "kyverno"))
	if err != nil || !strings.Contains(string(built), "-s -w -X github.com/kyverno/kyverno/pkg/version.BuildVersion=v1.19.1") {
		t.Errorf("it was built with %q, %v", built, err)
	}
	copied := contents(t, filepath.Join(root, "bin", "kyverno-config"))
	if diff := cmp.Diff(map[string]string{"LICENSE": "AGPL", "crd.yaml": "crd"}, copied); diff != "" {
		t.Errorf("the copied folder (-want +got):\n%s", diff)
	}
}

// TestRunModfile builds the control plane of another version, with the module file of that version.
func TestRunModfile(t *testing.T) {
	root := sources(t, `echo "$all" >"$out"`)
	var errOut bytes.Buffer
	if code := run(t.Context(), []string{"-C", root, "tenure-cluster-1.33"}, os.Stdout, &errOut); code != 0 {
		t.Fatalf("run(): want 0, got %d: %s", code, &errOut)
	}
	built := contents(t, filepath.Join(root, "bin"))["tenure-cluster-1.33"]
	for _, want := range []string{"-modfile=kubernetes-1.33.mod", ".gitVersion=v1.33.13 ", ".gitMinor=33 "} {
		if !strings.Contains(built, want) {
			t.Errorf("it was built without %q: %s", want, built)
		}
	}
}

// TestRunJoined builds programs as one: the copies of their modules can be imported, and the
// published ones are as they were.
func TestRunJoined(t *testing.T) {
	root := sources(t, `cat main.go source-controller/main.go source-watcher/v2/cmd/main.go >"$out"; echo "$all" >>"$out"`)
	var errOut bytes.Buffer
	if code := run(t.Context(), []string{"-C", root, "tenure-flux"}, os.Stdout, &errOut); code != 0 {
		t.Fatalf("run(): want 0, got %d: %s", code, &errOut)
	}
	const changed = "package controller\n\nfunc Main() {\n}\n"
	built := contents(t, filepath.Join(root, "bin"))["tenure-flux"]
	if want := "package all\n" + changed + changed + "build -v -tags=joined "; !strings.HasPrefix(built, want) {
		t.Errorf("it was built of %q instead of %q", built, want)
	}
	main := filepath.Join(root, "program", "main.go")
	if published, err := os.ReadFile(main); err != nil || !strings.Contains(string(published), "package main") {
		t.Errorf("the published module is now %q, %v", published, err)
	}
	testprogram.Write(t, main, []byte("package main\n"))
	want := `cannot join github.com/fluxcd/source-controller: main.go has 0 lines "func main() {", not one`
	if code := run(t.Context(), []string{"-C", root, "tenure-flux"}, os.Stdout, &errOut); code != 1 || !strings.Contains(errOut.String(), want) {
		t.Errorf("a program of another form: got %d: %s", code, &errOut)
	}
}

// TestRunStamped builds Tenure's own program and one of others as a version.
func TestRunStamped(t *testing.T) {
	root := sources(t, `echo "$all" >"$out"`)
	if err := os.MkdirAll(filepath.Join(root, "cmd/tenure"), 0o750); err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	args := []string{"-C", root, "-version", "v0.1.0", "-repository", "registry.example.com/tenure-server", "tenure", "tenure-cluster"}
	if code := run(t.Context(), args, os.Stdout, &errOut); code != 0 {
		t.Fatalf("run(): got %d: %s", code, &errOut)
	}
	const pkg = "-X github.com/tenure-dev/tenure/internal/release."
	got := contents(t, filepath.Join(root, "bin"))
	for _, want := range []string{pkg + "version=v0.1.0", pkg + "repository=registry.example.com/tenure-server"} {
		if !strings.Contains(got["tenure"], want) {
			t.Errorf("tenure is built without %q: %s", want, got["tenure"])
		}
	}
	if strings.Contains(got["tenure-cluster"], pkg) {
		t.Errorf("Kubernetes is built as a version of Tenure: %s", got["tenure-cluster"])
	}
	args[3] = "v0.1.0 -X main.a=b"
	if code := run(t.Context(), args, os.Stdout, &errOut); code != 2 || !strings.Contains(errOut.String(), "as the version") {
		t.Errorf("a flag of the linker in the version: got %d: %s", code, &errOut)
	}
}

func TestRunUsage(t *testing.T) {
	t.Parallel()
	var errOut bytes.Buffer
	if code := run(t.Context(), []string{"tenur"}, os.Stdout, &errOut); code != 2 || !strings.Contains(errOut.String(), "there is no such program") {
		t.Errorf("run(): a typo is a usage error, got %d: %s", code, &errOut)
	}
}

// sources creates a repository with an old program in bin, and puts a fake go command into
// PATH. Only one test at a time can use it.
func sources(t *testing.T, script string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"cluster/go.mod":              "module m\n\nrequire k8s.io/kubernetes v1.36.3\n",
		"cluster/kubernetes-1.33.mod": "module m\n\nrequire k8s.io/kubernetes v1.33.13\n",
		// Of a program that is built in a copy.
		"hack/fluxmanifests/go.mod": "module m\n\nrequire github.com/fluxcd/flux2/v2 v2.9.5\n",
		"module/main.go":            "package main\n",
		// Of a program that is built in the module that pins it.
		"cluster/fluxoperator/go.mod": "module m\n\nrequire github.com/controlplaneio-fluxcd/flux-operator v0.58.0\n",
		"cluster/fluxoperator/go.sum": "",
		"cluster/kyverno/go.mod":      "module m\n\nrequire github.com/kyverno/kyverno v1.19.1\n",
		// Of a program that joins others.
		"cluster/flux/go.mod":    "module m\n",
		"cluster/flux/main.go":   "package all\n",
		"program/main.go":        "package main\n\nfunc main() {\n}\n",
		"program/cmd/main.go":    "package main\n\nfunc main() {\n}\n",
		"module/LICENSE":         "AGPL",
		"module/config/crd.yaml": "crd",
		"bin/tenure-cluster":     "old\n",
		"never":                  "",
		"path/go": `#!/bin/sh
root='` + root + `'
case "$*" in "mod download -json github.com/fluxcd/source-watcher/v2"|"mod download -json github.com/fluxcd/"*-controller) printf '{"Dir": "%s/program"}' "$root"; exit;; esac
[ "$1" != mod ] || { printf '{\n"Dir": "%s/module"\n}\n' "$root"; exit; }
[ "$1" = build ] || { echo example.com/pkg; exit; }
all="$*"
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
` + script + "\n",
	}
	for name, content := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		testprogram.Write(t, file, []byte(content))
	}
	t.Setenv("PATH", filepath.Join(root, "path")+string(os.PathListSeparator)+os.Getenv("PATH"))
	return root
}

// contents returns every file of a folder, hidden ones included.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatalf("%s was left behind: %v", entry.Name(), err)
		}
		files[entry.Name()] = string(content)
	}
	return files
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
)

func TestOutputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("verify.json"), []byte(strings.Repeat("old", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := one(judgement{}, attacked(catalog.GotThrough))
	for _, tc := range []struct {
		reason string
		values []string
		begins string
	}{
		{"text by default", nil, "✗ got through"},
		{"text stays when all else has a file", []string{"sarif=" + file("verify.sarif"), "junit=" + file("verify.xml"), "json=" + file("verify.json")}, "✗ got through"},
		{"another form takes its place", []string{"json", "text=" + file("verify.txt")}, "{\n"},
	} {
		all, err := parseOutputs(tc.values)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := all.write(r, ui.IO{Out: &out}, false); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out.String(), tc.begins) {
			t.Errorf("%s: the output is\n%s", tc.reason, out.String())
		}
	}
	for name, begins := range map[string]string{"verify.sarif": "{\n", "verify.xml": "<?xml", "verify.json": "{\n", "verify.txt": "✗ got through"} {
		content, err := os.ReadFile(file(name))
		if err != nil || !strings.HasPrefix(string(content), begins) {
			t.Errorf("%s: %v\n%s", name, err, content)
		}
		if filepath.Ext(name) == ".json" && !json.Valid(content) {
			t.Errorf("an older report is not overwritten altogether:\n%s", content)
		}
	}
}

// TestOutputsFail checks that a report that cannot be written is an error, and that the others
// are written.
func TestOutputsFail(t *testing.T) {
	t.Parallel()
	all := outputs{{form: "text"}, {form: "json", file: filepath.Join(t.TempDir(), "gone", "verify.json")}}
	var out bytes.Buffer
	err := all.write(one(judgement{}, attacked(catalog.Stopped)), ui.IO{Out: &out}, false)
	if err == nil || ui.ExitCode(err) != exitUnjudged || !strings.Contains(out.String(), "✓ safe") {
		t.Errorf("got %v with exit code %d and the output\n%s", err, ui.ExitCode(err), out.String())
	}
}

// TestNotWritable checks that a file that cannot be written is refused before the run.
func TestNotWritable(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		testprogram.AsNobody(t) // root may write everywhere
		return
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "verify.json")
	if err := os.WriteFile(old, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	for file, named := range map[string]string{filepath.Join(dir, "verify.json"): dir, old: old} {
		if _, err := parseOutputs([]string{"json=" + file}); err == nil || !strings.Contains(err.Error(), "cannot write to "+named+":") {
			t.Errorf("-o json=%s: got %v, want an error that names %s", file, err, named)
		}
	}
}

func TestTextOfTheFolder(t *testing.T) {
	t.Parallel()
	f := attacked(catalog.Stopped)
	f.read = &local.FolderRead{Files: 5, Objects: 9, Applied: 2, NotApplied: []local.NotApplied{
		{File: "a.yaml", Objects: []string{"ConfigMap a/a"}, Reason: "no applied Kustomization leads to it"}, {File: "b.yaml", Objects: nil, Reason: "no applied Kustomization leads to it"}, {File: "c.yaml", Objects: []string{"Secret c"}, Reason: "it cannot be read"},
	}}
	var out bytes.Buffer
	if err := one(judgement{}, f).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	want := "! not applied: 3 of 5 files of clusters/staging\n  no applied Kustomization leads to it: a.yaml (ConfigMap a/a), b.yaml\n  it cannot be read: c.yaml (Secret c)\n"
	if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "read: 5 files of clusters/staging with 9 objects; 2 files applied, 3 not\n") {
		t.Errorf("what was read is counted, and what was not applied is listed:\n%s", &out)
	}
}

// TestErrorIsPrintedOnce checks that the text names the error that ended a run once, with its hints, and
// that the error stream has it only if the output has another form.
func TestErrorIsPrintedOnce(t *testing.T) {
	t.Parallel()
	for form, wantStderr := range map[string]int{"text": 0, "json": 1} {
		var out, errs bytes.Buffer
		var fleet local.Flags
		fleet.Paths, fleet.Cluster.Fleet, fleet.Cluster.BinDir = []string{"nowhere"}, t.TempDir(), t.TempDir() // without programs
		v := verification{
			streams: ui.IO{Out: &out, Err: &errs}, fleet: fleet, outputs: outputs{{form: form}},
			display: &local.Display{Screen: ui.NewScreen(&errs)},
		}
		_ = v.run(t.Context())
		if n := strings.Count(errs.String(), "✗ "); n != wantStderr || !strings.Contains(out.String(), "not judged") {
			t.Errorf("-o %s: the error stream is\n%s\nand the output is\n%s", form, &errs, &out)
		}
	}
	f := attacked()
	f.err = ui.WithHint(errors.New("etcd ended"), "look at its log")
	var out bytes.Buffer
	if err := one(judgement{}, f).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "etcd ended") != 1 || !strings.HasSuffix(out.String(), "\n  look at its log\n") {
		t.Errorf("the error is not there once, with its hint:\n%s", &out)
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "report.json")
	if err := writeFile(name, strings.NewReader("{}")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "{}" {
		t.Errorf("the file has %q, %v", got, err)
	}
	broken := errors.New("broken")
	if err := writeFile(name, iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("the error is %v, want %v", err, broken)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an incomplete report remains: %v", err)
	}
	target, link := filepath.Join(t.TempDir(), "target.json"), filepath.Join(t.TempDir(), "link.json")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(link, io.MultiReader(strings.NewReader("{"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("the error is %v, want %v", err, broken)
	}
	if got, err := os.ReadFile(target); err != nil || len(got) > 0 {
		t.Errorf("an incomplete report remains behind a link: %q, %v", got, err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Errorf("the link is gone: %v", err)
	}
	if err := writeFile(os.DevNull, iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("the error is %v, want %v", err, broken)
	}
	if _, err := os.Stat(os.DevNull); err != nil {
		t.Errorf("a device is gone: %v", err)
	}
}

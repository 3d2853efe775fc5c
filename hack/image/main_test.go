package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// commitTiny creates a repository with one commit of a small program in a folder, and tags it.
func commitTiny(t *testing.T, tags ...string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := tinySource(dir); err != nil {
		t.Fatal(err)
	}
	for _, args := range append([][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "-m", "first"}}, tagged(tags)...) {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
			"GIT_AUTHOR_DATE=1700000000 +0200", "GIT_COMMITTER_DATE=1700000000 +0200")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
	return dir
}

func tagged(tags []string) [][]string {
	var commands [][]string
	for _, tag := range tags {
		commands = append(commands, []string{"tag", tag})
	}
	return commands
}

// TestSource reads version, commit and time from Git.
func TestSource(t *testing.T) {
	clean, plain := commitTiny(t, "v0.1.0", "v0.10.0", "v0.2.0", "other"), commitTiny(t)
	dirty := commitTiny(t, "v0.1.0")
	if err := os.WriteFile(filepath.Join(dirty, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	none := t.TempDir()
	for _, tt := range []struct {
		reason, root, epoch string
		o                   options
		version, tag        string
		time                int64
		fails               string
	}{
		{reason: "the newest tag is the version", root: clean, version: "v0.10.0", tag: "v0.10.0", time: 1700000000},
		{reason: "a version is named", root: clean, o: options{version: "v9.0.0"}, version: "v9.0.0", tag: "v9.0.0", time: 1700000000},
		{reason: "another time is named", root: clean, epoch: "1", version: "v0.10.0", tag: "v0.10.0", time: 1},
		{reason: "a commit without a tag", root: plain, version: "v0.0.0-20231114221320-", tag: "v0.0.0-20231114221320-", time: 1700000000},
		{reason: "changes", root: dirty, version: "v0.1.0+dirty", tag: "v0.1.0-dirty", time: 1700000000},
		{reason: "a release", root: clean, o: options{release: true}, version: "v0.10.0", tag: "v0.10.0", time: 1700000000},
		{reason: "a release of another tag of the commit", root: clean, o: options{release: true, version: "v0.2.0"}, version: "v0.2.0", tag: "v0.2.0", time: 1700000000},
		{reason: "a release without a section in the changelog", root: clean, o: options{release: true, version: "v0.1.0"}, fails: `CHANGELOG.md has no section "## v0.1.0"`},
		{reason: "a release without a tag", root: plain, o: options{release: true}, fails: "has no tag with a version"},
		{reason: "a release as a version without a tag", root: clean, o: options{release: true, version: "v9.0.0"}, fails: "has no tag v9.0.0"},
		{reason: "a release with changes", root: dirty, o: options{release: true}, fails: "not committed"},
		{reason: "no Git", root: none, fails: "name -version and set SOURCE_DATE_EPOCH"},
		{reason: "no Git, and all is named", root: none, epoch: "1", o: options{version: "v0.1.0"}, version: "v0.1.0", tag: "v0.1.0", time: 1},
		{reason: "a version that no image can have", root: clean, o: options{version: "latest"}, fails: `cannot take "latest" as the version`},
		{reason: "a flag of the linker in a version", root: clean, o: options{version: "v0.1.0 -X main.a=b"}, fails: "as the version"},
		{reason: "a time that is none", root: clean, epoch: "now", fails: "SOURCE_DATE_EPOCH"},
		{reason: "an architecture that Tenure does not run on", root: clean, o: options{architectures: "s390x"}, fails: `"s390x": the architectures are amd64 and arm64`},
		{reason: "a system that Tenure has no archives for", root: clean, o: options{systems: "linux/amd64,plan9/amd64"}, fails: `"plan9/amd64": the systems are [darwin/amd64 darwin/arm64 linux/amd64 linux/arm64]`},
		{reason: "no architecture", root: clean, o: options{architectures: ","}, fails: "no architecture"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", tt.epoch)
			t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(tt.root))
			o := tt.o
			if o.root = tt.root; o.architectures == "" {
				o.architectures = "arm64,amd64,arm64"
			}
			s, err := o.source(t.Context())
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got error %v, want %q", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(s.version, tt.version) || !strings.HasPrefix(s.tag(), tt.tag) || !s.created.Equal(time.Unix(tt.time, 0)) {
				t.Errorf("got version %s, tag %s and time %d, want %s, %s and %d", s.version, s.tag(), s.created.Unix(), tt.version, tt.tag, tt.time)
			}
			if strings.Join(s.architectures, ",") != "amd64,arm64" {
				t.Errorf("got architectures %v", s.architectures)
			}
		})
	}
}

// TestRun checks errors that the command reports before it compiles anything.
func TestRun(t *testing.T) {
	t.Setenv("COSIGN_PASSWORD", "wrong")
	clean := commitTiny(t, "v0.1.0")
	for _, tt := range []struct {
		reason string
		args   []string
		code   int
		says   string
	}{
		{"an argument", []string{"x"}, 2, `image takes no arguments, but was given "x"`},
		{"an unknown flag", []string{"-x"}, 2, "flag provided but not defined"},
		{"a push without a tag", []string{"-push", "registry.example.com/x"}, 1, "write HOST/REPOSITORY:TAG"},
		{"a key that is not there", []string{"-key", "none"}, 1, "cannot read the key"},
		{"a wrong password", []string{"-key", "testdata/cosign.key"}, 1, "the password is wrong: set COSIGN_PASSWORD"},
		{"a public key", []string{"-key", "testdata/cosign.pub"}, 1, "no private key"},
		{"a release without a key", []string{"-C", clean, "-release"}, 1, "cannot release without a signature"},
		{"a program that is not there", []string{"-C", clean, "-arch", "amd64"}, 1, "cannot list the modules of ."},
	} {
		var out, errOut bytes.Buffer
		if code := run(t.Context(), tt.args, &out, &errOut); code != tt.code || !strings.Contains(errOut.String(), tt.says) || out.Len() > 0 {
			t.Errorf("%s: got code %d, output %q and\n%s\nwant code %d and %q", tt.reason, code, &out, &errOut, tt.code, tt.says)
		}
	}
	if err := os.Unsetenv("COSIGN_PASSWORD"); err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	if code := run(t.Context(), []string{"-key", "testdata/cosign.key"}, &errOut, &errOut); code != 1 || !strings.Contains(errOut.String(), "COSIGN_PASSWORD is not set") {
		t.Errorf("without a password: got code %d and\n%s", code, &errOut)
	}
}

// TestWrite reads the output folder after two runs.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := tinyBundle(t, newSigner(t), "registry.example.com/acme/tiny")
	for range 2 {
		if err := all.write(dir, "registry.example.com/acme/tiny:v0.1.0"); err != nil {
			t.Fatal(err)
		}
	}
	checkLayout(t, filepath.Join(dir, layoutDir), all)
	for _, d := range all.documents {
		if got, err := os.ReadFile(filepath.Join(dir, d.file)); err != nil || !bytes.Equal(got, d.content) {
			t.Errorf("%s is not the document: %v", d.file, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("the folder has %v: %v", entries, err)
	}
}

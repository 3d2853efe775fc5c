package workspace

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree is a folder's files by name; a value that begins with "->" is a link.
type tree map[string]string

func write(t *testing.T, files tree) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(file, []byte(content), 0o644)
		if target, link := strings.CutPrefix(content, "->"); link {
			err = errors.Join(os.Remove(file), os.Symlink(target, file))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, dir string) tree {
	t.Helper()
	files := tree{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		if d.IsDir() {
			if entries, _ := os.ReadDir(name); len(entries) == 0 {
				files[rel] = "(empty folder)"
			}
			return nil
		}
		if target, err := os.Readlink(name); err == nil {
			files[rel] = "->" + target
			return nil
		}
		content, err := os.ReadFile(name)
		files[rel] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func open(t *testing.T, dir string) *Set {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestApply(t *testing.T) {
	t.Parallel()
	dir := write(t, tree{"kept": "1\n", "edited": "1\n", "gone/deep/file": "1\n", "unchanged": "1\n"})
	s := open(t, dir)
	for name, content := range map[string]string{"edited": "2\n", "new/folder/file": "3\n", "unchanged": "1\n"} {
		if err := s.Write(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove("gone/deep/file"); err != nil {
		t.Fatal(err)
	}
	want := `diff --git a/edited b/edited
--- a/edited
+++ b/edited
@@ -1 +1 @@
-1
+2
diff --git a/gone/deep/file b/gone/deep/file
deleted file mode 100644
--- a/gone/deep/file
+++ /dev/null
@@ -1 +0,0 @@
-1
diff --git a/new/folder/file b/new/folder/file
new file mode 100644
--- /dev/null
+++ b/new/folder/file
@@ -0,0 +1 @@
+3
`
	if diff := cmp.Diff(want, s.Diff()); diff != "" {
		t.Errorf("the diff (-want +got):\n%s", diff)
	}
	apply := exec.CommandContext(t.Context(), "git", "apply", "--check", "-")
	apply.Dir, apply.Stdin = dir, strings.NewReader(s.Diff())
	if out, err := apply.CombinedOutput(); err != nil {
		t.Errorf("git does not take the diff: %v\n%s", err, out)
	}
	if err := s.Apply(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree{"kept": "1\n", "edited": "2\n", "new/folder/file": "3\n", "unchanged": "1\n"}, read(t, dir)); diff != "" {
		t.Errorf("the folder (-want +got):\n%s", diff)
	}
	if s.Diff() != "" {
		t.Error("something is still to be changed after the change")
	}
}

// TestTwoKustomizations checks that a folder with a kustomization file gets no second one, which
// kustomize would refuse.
func TestTwoKustomizations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yml"), []byte("resources: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Write("kustomization.yaml", []byte("resources: []\n")); !errors.Is(err, ErrTwoKustomizations) {
		t.Errorf("got %v, want %v", err, ErrTwoKustomizations)
	}
	for _, name := range []string{"kustomization.yml", "other/kustomization.yaml", "other/kustomization.yaml"} {
		if err := s.Write(name, []byte("resources: [a.yaml]\n")); err != nil {
			t.Error(err)
		}
	}
	if err := s.Remove("kustomization.yml"); err != nil {
		t.Fatal(err)
	}
	if err := s.Write("Kustomization", []byte("resources: []\n")); err != nil {
		t.Errorf("the other file is removed in the same change: %v", err)
	}
}

// TestApplyFails makes a change fail at every step, and checks that the folder is unchanged.
func TestApplyFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		meddle func(t *testing.T, dir string)
		want   error
		more   string // one more file to write
	}{
		"changed meanwhile": {
			reason: "what somebody saved while the diff was shown must not be lost",
			meddle: func(t *testing.T, dir string) { put(t, dir, "a", "theirs\n") },
			want:   ErrChanged,
		},
		"appeared meanwhile": {
			reason: "a file that was not there must not be overwritten",
			meddle: func(t *testing.T, dir string) { put(t, dir, "new", "theirs\n") },
			want:   ErrChanged,
		},
		"a file in the way": {
			reason: "a folder that is needed is a file by now",
			meddle: func(t *testing.T, dir string) {
				if err := os.MkdirAll(filepath.Join(dir, "zz"), 0o755); err != nil {
					t.Fatal(err)
				}
				put(t, dir, "zz/z", "a file where a folder must be\n")
			},
		},
		"a name that is too long": {
			reason: "the last file cannot be written, so what was written for the others goes again",
			meddle: func(*testing.T, string) {},
			more:   "zzz" + strings.Repeat("z", 250),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := write(t, tree{"a": "1\n", "b": "1\n"})
			s := open(t, dir)
			for file, content := range map[string]string{"a": "2\n", "new": "2\n", "new2/x/y": "2\n", "zz/z/z": "2\n", tc.more: "2\n"} {
				if file == "" {
					continue
				}
				if err := s.Write(file, []byte(content)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Remove("b"); err != nil {
				t.Fatal(err)
			}
			tc.meddle(t, dir)
			before := read(t, dir)
			err := s.Apply()
			if err == nil || (tc.want != nil && !errors.Is(err, tc.want)) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
			if diff := cmp.Diff(before, read(t, dir)); diff != "" {
				t.Errorf("%s: the folder changed (-before +after):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestApplyPutsBack fails in the middle of the renames.
func TestApplyPutsBack(t *testing.T) {
	t.Parallel()
	dir := write(t, tree{"a": "1\n", "b": "1\n"})
	s := open(t, dir)
	a := application{root: s.root, suffix: ".test"}
	files := map[string]*file{
		"a": {old: []byte("1\n"), content: []byte("2\n")},
		"b": {old: []byte("1\n")},
		"c": {content: []byte("2\n")},
	}
	if err := a.run(files, []string{"a", "b", "c"}); err != nil {
		t.Fatal(err)
	}
	if err := a.undo(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree{"a": "1\n", "b": "1\n"}, read(t, dir)); diff != "" {
		t.Errorf("what was renamed is not put back (-want +got):\n%s", diff)
	}
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestLinks checks that links are neither followed out of the folder nor
// replaced.
func TestLinks(t *testing.T) {
	t.Parallel()
	outside := write(t, tree{"file": "theirs\n"})
	dir := write(t, tree{"inside": "1\n", "file": "->" + filepath.Join(outside, "file"), "folder": "->" + outside, "near": "->inside"})
	for name, reason := range map[string]string{
		"file":       "a link to a file outside",
		"folder/new": "a folder that leads outside",
		"near":       "a link inside: a rename would make a file of it",
		"../file":    "a name that leads outside",
	} {
		if err := open(t, dir).Write(name, []byte("ours\n")); err == nil {
			t.Errorf("%s: %s is written to", reason, name)
		}
	}
	if diff := cmp.Diff(tree{"file": "theirs\n"}, read(t, outside)); diff != "" {
		t.Errorf("the outside changed (-want +got):\n%s", diff)
	}
}

// TestUnifiedNames applies diffs for files with names that need care.
func TestUnifiedNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.yaml", "équipe/x.yaml", `quo"te.yaml`, `back\slash.yaml`, "tab\there.yaml", " .yaml"} {
		for reason, before := range map[string][]byte{"a file that changes": []byte("a: 1\n"), "a new file": nil} {
			dir := t.TempDir()
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if before != nil {
				if err := os.WriteFile(file, before, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			diff := Unified(name, before, []byte("a: 2\n"))
			cmd := exec.CommandContext(t.Context(), "git", "apply")
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(diff)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s, %q: %v: %s\n%s", reason, name, err, out, diff)
				continue
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != "a: 2\n" {
				t.Errorf("%s, %q: %q, %v", reason, name, got, err)
			}
		}
	}
}

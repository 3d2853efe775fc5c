package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, dir, name, content string, mode os.FileMode) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func all(string) bool { return true }

// TestReproducible checks that the same files give the same bytes, whatever their
// times, without links and without .git.
func TestReproducible(t *testing.T) {
	t.Parallel()
	var packs []*Pack
	for i := range 2 {
		dir := t.TempDir()
		for _, name := range [][]string{{"b/c.yaml", "a.yaml"}, {"a.yaml", "b/c.yaml"}}[i] {
			write(t, dir, name, name, 0o600)
			when := time.Unix(int64(1000*i), 0)
			if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
				t.Fatal(err)
			}
		}
		write(t, dir, "run.sh", "run", 0o700)
		write(t, dir, "left-out.txt", "x", 0o600)
		write(t, dir, ".git/HEAD", "ref", 0o600)
		if err := os.Symlink("/etc/hostname", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc", filepath.Join(dir, "folder")); err != nil {
			t.Fatal(err)
		}
		pack, err := New(dir, "top", nil, func(name string) bool { return name != "left-out.txt" })
		if err != nil {
			t.Fatal(err)
		}
		packs = append(packs, pack)
	}
	if diff := cmp.Diff(packs[0], packs[1]); diff != "" {
		t.Errorf("two folders of the same files differ:\n%s", diff)
	}
	zip, err := gzip.NewReader(bytes.NewReader(packs[0].Gzip))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for tape := tar.NewReader(zip); ; {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[header.Name] = header.Mode
	}
	if diff := cmp.Diff(map[string]int64{"top/a.yaml": 0o644, "top/b/c.yaml": 0o644, "top/run.sh": 0o755}, got); diff != "" {
		t.Errorf("files of the archive (-want +got):\n%s", diff)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a", "", 0o600)
	if err := os.Truncate(filepath.Join(dir, "a"), MaxFile); err != nil {
		t.Fatal(err)
	}
	if _, err := New(dir, "", nil, all); err != nil {
		t.Errorf("a file of just the size: %v", err)
	}
	if err := os.Truncate(filepath.Join(dir, "a"), MaxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := New(dir, "", nil, all); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file beyond the size: got %v, want %v", err, ErrTooLarge)
	}
	if _, err := New(dir, "", nil, func(string) bool { return false }); err != nil {
		t.Errorf("a large file that is left out: %v", err)
	}
}

func TestStamp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	last := ""
	for _, step := range []struct {
		reason  string
		do      func()
		changes bool
	}{
		{"a first file", func() { write(t, dir, "a", "1", 0o600) }, true},
		{"nothing", func() {}, false},
		{"another size", func() { write(t, dir, "a", "22", 0o600) }, true},
		{"a file of a folder", func() { write(t, dir, "b/c", "1", 0o600) }, true},
		{"another time", func() { _ = os.Chtimes(filepath.Join(dir, "a"), time.Time{}, time.Unix(5, 0)) }, true},
		{"a file less", func() { _ = os.Remove(filepath.Join(dir, "a")) }, true},
		{"what git does for itself", func() { write(t, dir, ".git/index", "1", 0o600) }, false},
	} {
		step.do()
		stamp, err := Stamp(dir)
		if err != nil || (stamp != last) != step.changes {
			t.Errorf("%s: the stamp went from %s to %s, %v", step.reason, last, stamp, err)
		}
		last = stamp
	}
	if _, err := Stamp(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing folder: got %v", err)
	}
}

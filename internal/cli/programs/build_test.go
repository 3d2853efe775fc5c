package programs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository writes a clone with a Makefile, and returns its root.
func repository(t *testing.T, recipe string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":   "module github.com/tenure-dev/tenure\n",
		"Makefile": "build:\n\t" + recipe + "\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "bin", "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	return root
}

// TestBuild compiles the programs of a clone with make.
func TestBuild(t *testing.T) {
	elsewhere := t.TempDir()
	other := filepath.Join(elsewhere, "go.mod")
	if err := os.WriteFile(other, []byte("module github.com/tenure-dev/tenure/cluster\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	built := func(t *testing.T, own, working, want string) {
		t.Helper()
		t.Chdir(working)
		var log bytes.Buffer
		dir, err := (&Flags{build: true}).Dir(t.Context(), own, &log)
		if err != nil || dir != filepath.Join(want, "bin") || !strings.Contains(log.String(), "compiling\n") {
			t.Errorf("got %q and %v, want the programs of %s\n%s", dir, err, want, &log)
		}
	}
	t.Run("by the program's folder", func(t *testing.T) {
		root := repository(t, "@echo compiling")
		built(t, filepath.Join(root, "bin"), repository(t, "false"), root)
	})
	t.Run("by the working folder", func(t *testing.T) {
		root := repository(t, "@echo compiling")
		built(t, elsewhere, filepath.Join(root, "bin", "deep"), root)
	})
	t.Run("no clone", func(t *testing.T) {
		t.Chdir(elsewhere)
		if dir, err := (&Flags{build: true}).Dir(t.Context(), elsewhere, os.Stderr); !errors.Is(err, errNoSources) {
			t.Errorf("got %q and %v", dir, err)
		}
	})
	t.Run("a build that fails", func(t *testing.T) {
		root := repository(t, "@echo no compiler; false")
		var log bytes.Buffer
		_, err := (&Flags{build: true}).Dir(t.Context(), root, &log)
		if err == nil || !strings.Contains(err.Error(), "cannot build the programs in "+root) || !strings.Contains(log.String(), "no compiler") {
			t.Errorf("got %v\n%s", err, &log)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		root := repository(t, "@echo compiling; exec sleep 600")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := (&Flags{build: true}).Dir(ctx, root, interruptWriter(cancel)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// interruptWriter interrupts at the first output.
type interruptWriter context.CancelFunc

func (w interruptWriter) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

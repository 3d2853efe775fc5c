package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck checks that a call which one system does not have is found for this system alone,
// in code and in tests.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":       "module example.com/portable\n\ngo 1.26.0\n",
		"all.go":       "package portable\n\nimport \"syscall\"\n\nvar _ = syscall.Gettid\n",
		"some_test.go": "package portable\n\nimport (\n\t\"syscall\"\n\t\"testing\"\n)\n\nfunc TestSome(*testing.T) { _ = syscall.Unshare }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	faults, err := check(dir, "linux", []string{"./..."})
	if err != nil || len(faults) > 0 {
		t.Errorf("on Linux: %v, %v", faults, err)
	}
	faults, err = check(dir, "darwin", []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(faults, "\n")
	for _, want := range []string{"all.go:5:17: undefined: syscall.Gettid", "some_test.go:8:41: undefined: syscall.Unshare"} {
		if !strings.Contains(all, want) {
			t.Errorf("on macOS, %q is missing in:\n%s", want, all)
		}
	}
}

func TestNoPackages(t *testing.T) {
	t.Parallel()
	if faults, err := check(t.TempDir(), "linux", []string{"./..."}); err == nil && len(faults) == 0 {
		t.Error("a folder without packages is taken")
	}
}

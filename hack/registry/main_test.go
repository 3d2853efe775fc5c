package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const catalogue = "../../internal/verify/catalog"

// TestCommitted compares the list in the repository with a new one: an attack that is not in it is never tried.
func TestCommitted(t *testing.T) {
	t.Parallel()
	want, err := list(catalogue)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(catalogue, "zz_generated.registry.go"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run make generate (-want +got):\n%s", diff)
	}
}

// TestList checks which functions are in the list.
func TestList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"b.go":      "package attacks\n\nfunc addB(register func(...Attack)) {}\nfunc helper(other func(...Attack)) {}\nfunc (x T) addC(register func(...Attack)) {}\n",
		"a.go":      "package attacks\n\nfunc addZ(register func(...Attack)) {}\nfunc addA(register func(...Attack)) {}\n",
		"a_test.go": "package attacks\n\nfunc addTest(register func(...Attack)) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(source)) {
		if name, ok := strings.CutSuffix(line, ",\n"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if diff := cmp.Diff([]string{"addA", "addB", "addZ"}, names); diff != "" {
		t.Errorf("functions by name, without tests, methods and others (-want +got):\n%s", diff)
	}
	if _, err := list(t.TempDir()); err == nil {
		t.Error("a folder without attacks must be an error")
	}
}

package up

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProgram checks that the printed command can be pasted.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(self), "kubectl")
	if got := program("kubectl", ""); got != beside {
		t.Errorf("not in PATH: want the one beside the running program, %s, got %s", beside, got)
	}
	if got, want := program("kubectl", "/fetched"), filepath.Join("/fetched", "kubectl"); got != want {
		t.Errorf("with programs elsewhere: want %s, got %s", want, got)
	}
	t.Chdir(filepath.Dir(filepath.Dir(self)))
	if got, want := program("kubectl", ""), filepath.Join(filepath.Base(filepath.Dir(self)), "kubectl"); got != want {
		t.Errorf("from the folder above: want the shorter %s, got %s", want, got)
	}
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := program("kubectl", ""); got != "kubectl" {
		t.Errorf("in PATH: want the name alone, got %s", got)
	}
}

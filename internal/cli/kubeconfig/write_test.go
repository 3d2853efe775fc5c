package kubeconfig

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWriteFile checks that only the owner can read the file, and that a missing folder is named.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "team.kubeconfig")
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(name, []byte("a: b\n")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is open to others: %v, %v", info, err)
	}
	missing := filepath.Join(dir, "none", "team.kubeconfig")
	want := "cannot write " + missing + ": there is no folder " + filepath.Dir(missing)
	if err := writeFile(missing, nil); err == nil || err.Error() != want {
		t.Errorf("want %q, got %v", want, err)
	}
}

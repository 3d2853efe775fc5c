package verify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster/network"
)

// TestContentsChanged checks which changes of files during the attacks leave no verdict.
func TestContentsChanged(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		change func(fleet, tenant string) error
		// in is the folder that the error names; "" for no error.
		in string
	}{
		"nothing":                    {func(string, string) error { return nil }, ""},
		"a manifest of the fleet":    {func(fleet, _ string) error { return os.WriteFile(filepath.Join(fleet, "a.yaml"), []byte("b"), 0o600) }, "fleet"},
		"a new manifest of a tenant": {func(_, tenant string) error { return os.WriteFile(filepath.Join(tenant, "b.yml"), nil, 0o600) }, "tenant"},
		"a manifest that is gone":    {func(_, tenant string) error { return os.Remove(filepath.Join(tenant, "a.yaml")) }, "tenant"},
		"a manifest with a new name": {func(fleet, _ string) error {
			return os.Rename(filepath.Join(fleet, "a.yaml"), filepath.Join(fleet, "c.yaml"))
		}, "fleet"},
		"a file Kustomization": {func(fleet, _ string) error {
			return os.WriteFile(filepath.Join(fleet, "Kustomization"), nil, 0o600)
		}, "fleet"},
		"a patch in JSON":             {func(_, tenant string) error { return os.WriteFile(filepath.Join(tenant, "a.json"), nil, 0o600) }, "tenant"},
		"a packed chart":              {func(_, tenant string) error { return os.WriteFile(filepath.Join(tenant, "a-1.0.0.tgz"), nil, 0o600) }, "tenant"},
		"a link":                      {func(fleet, _ string) error { return os.Symlink("a.yaml", filepath.Join(fleet, "b")) }, "fleet"},
		"a file that was saved again": {func(fleet, _ string) error { return os.WriteFile(filepath.Join(fleet, "a.yaml"), []byte("a"), 0o600) }, ""},
		"the log of the command": {func(fleet, _ string) error {
			return os.WriteFile(filepath.Join(fleet, "verify.log"), []byte("a"), 0o600)
		}, ""},
		"Git's own files": {func(fleet, _ string) error {
			return os.MkdirAll(filepath.Join(fleet, ".git", "x.yaml"), 0o700)
		}, ""},
	} {
		dir := t.TempDir()
		fleet, tenant := filepath.Join(dir, "fleet"), filepath.Join(dir, "tenant")
		for _, folder := range []string{fleet, tenant} {
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, "a.yaml"), []byte("a"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		maps := []network.Map{{Dir: tenant}, {Dir: fleet}}
		before := readContents(fleet, maps)
		if err := tc.change(fleet, tenant); err != nil {
			t.Fatal(err)
		}
		err := readContents(fleet, maps).changed(before)
		if (err == nil) != (tc.in == "") || err != nil && !strings.HasPrefix(err.Error(), "files in "+filepath.Join(dir, tc.in)+" changed") {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

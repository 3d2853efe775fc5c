package fleetgen

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet"
	"sigs.k8s.io/yaml"
)

// written are the files of a folder, by path.
func written(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestWrite(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	a, err := Write(one, ShapesPlatform(), Shapes(10, "web"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(two, ShapesPlatform(), Shapes(10, "web")); err != nil {
		t.Fatal(err)
	}
	files := written(t, one)
	if diff := cmp.Diff(files, written(t, two)); diff != "" {
		t.Errorf("the same input must give the same fleet (-one +two):\n%s", diff)
	}
	for name, content := range files {
		for part := range strings.SplitSeq(content, "\n---\n") {
			if err := yaml.UnmarshalStrict([]byte(part), &map[string]any{}); err != nil {
				t.Errorf("%s is no YAML: %v\n%s", name, err, part)
			}
		}
	}
	if len(a.Maps) != 10 {
		t.Errorf("%d repositories, want one for each tenant", len(a.Maps))
	}
	if _, err := fleet.Load(a.Dir, Path, fleet.Options{URL: Host + "/platform", Branch: "main"}); err != nil {
		t.Errorf("the fleet cannot be read: %v", err)
	}
}

func TestWriteSharedAndUnmapped(t *testing.T) {
	t.Parallel()
	fleet, err := Write(t.TempDir(), Platform{}, []Tenant{
		{Name: "one", Repository: "shared"}, {Name: "two", Repository: "shared"}, {Name: "far", Unmapped: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(fleet.Maps) != 1 || !strings.HasPrefix(fleet.Maps[0], Host+"/shared#main=") {
		t.Errorf("maps are %q, want the one repository that is shared", fleet.Maps)
	}
}

package artifacts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newRoot returns a folder with files.
func newRoot(t testing.TB, files map[string]string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// contents returns the files below a folder.
func contents(t testing.TB, root *os.Root) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := root.ReadFile(name)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// archive returns a compressed tar archive with the entries.
func archive(t testing.TB, headers ...tar.Header) string {
	t.Helper()
	var buffer bytes.Buffer
	compressed := gzip.NewWriter(&buffer)
	writer := tar.NewWriter(compressed)
	for i := range headers {
		if headers[i].Mode == 0 {
			headers[i].Mode = 0o644
		}
		if err := writer.WriteHeader(&headers[i]); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(make([]byte, headers[i].Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writer.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return buffer.String()
}

func TestCopy(t *testing.T) {
	t.Parallel()
	repo := map[string]string{
		"config.yaml": "a: {b: 1, c: 2}\nlist: [1, 2]\n", "configs/one.yaml": "1", "configs/two.yaml": "2", "configs/README.md": "text",
		"configs/deep/three.yaml": "3", "configs/deep/testdata/four.yaml": "4", ".hidden/five": "5",
		"charts/app.tgz": archive(t, tar.Header{Name: "app/Chart.yaml"}), "charts/old/app.tar.gz": archive(t, tar.Header{Name: "old/Chart.yaml"}),
	}
	over := map[string]string{"values.yaml": "a: {b: 3}\nlist: [9]\n"}
	tests := map[string]struct {
		reason string
		copy   []operation
		want   map[string]string
	}{
		"file to path":           {"a destination without a slash is the file's name", []operation{{From: "@repo/config.yaml", To: "@artifact/apps/app.yaml"}}, map[string]string{"apps/app.yaml": repo["config.yaml"]}},
		"file to folder":         {"a destination with a slash is a folder", []operation{{From: "@repo/config.yaml", To: "@artifact/apps/"}}, map[string]string{"apps/config.yaml": repo["config.yaml"]}},
		"file to existing":       {"like cp, a folder that exists takes the file", []operation{{From: "@repo/configs/one.yaml", To: "@artifact/apps/"}, {From: "@repo/configs/two.yaml", To: "@artifact/apps"}}, map[string]string{"apps/one.yaml": "1", "apps/two.yaml": "2"}},
		"files by a pattern":     {"a pattern keeps the whole path", []operation{{From: "@repo/configs/*.yaml", To: "@artifact/apps/"}}, map[string]string{"apps/configs/one.yaml": "1", "apps/configs/two.yaml": "2"}},
		"folder":                 {"a folder keeps its own name only", []operation{{From: "@repo/configs/deep/", To: "@artifact/apps/"}}, map[string]string{"apps/deep/three.yaml": "3", "apps/deep/testdata/four.yaml": "4"}},
		"content of folder":      {"/** leaves the folder out", []operation{{From: "@repo/configs/deep/**", To: "@artifact/"}}, map[string]string{"three.yaml": "3", "testdata/four.yaml": "4"}},
		"one level":              {"** in the middle of a pattern is one level for upstream", []operation{{From: "@repo/configs/**/*.yaml", To: "@artifact/"}}, map[string]string{"configs/deep/three.yaml": "3"}},
		"exclude":                {"patterns match names, paths of the source and paths below the folder", []operation{{From: "@repo/configs/**", To: "@artifact/", Exclude: []string{"*.md", "**/testdata/**", "configs/one.yaml", "deep/three.yaml"}}}, map[string]string{"two.yaml": "2"}},
		"whole source":           {"the root has no name, and hidden folders keep theirs", []operation{{From: "@repo/", To: "@artifact/all", Exclude: []string{"configs", "charts", "config.yaml"}}}, map[string]string{"all/.hidden/five": "5"}},
		"overwrite":              {"a later operation wins", []operation{{From: "@repo/configs/one.yaml", To: "@artifact/x"}, {From: "@repo/configs/two.yaml", To: "@artifact/x"}}, map[string]string{"x": "2"}},
		"merge":                  {"maps are merged and lists replaced, as by Helm", []operation{{From: "@repo/config.yaml", To: "@artifact/v.yaml"}, {From: "@over/values.yaml", To: "@artifact/v.yaml", Strategy: mergeStrategy}}, map[string]string{"v.yaml": "a:\n  b: 3\n  c: 2\nlist:\n- 9\n"}},
		"merge without a target": {"a file that is not there yet is copied", []operation{{From: "@over/values.yaml", To: "@artifact/v.yaml", Strategy: mergeStrategy}}, map[string]string{"v.yaml": over["values.yaml"]}},
		"extract":                {"the archive's own folders are kept", []operation{{From: "@repo/charts/app.tgz", To: "@artifact/c", Strategy: extractStrategy}}, map[string]string{"c/app/Chart.yaml": ""}},
		"extract by a pattern":   {"** matches all levels here, and other files are left out", []operation{{From: "@repo/**/*", To: "@artifact/", Strategy: extractStrategy}}, map[string]string{"app/Chart.yaml": "", "old/Chart.yaml": ""}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			staging := newRoot(t, nil)
			c := copier{map[string]*os.Root{"repo": newRoot(t, repo), "over": newRoot(t, over)}, staging, newBudget()}
			if err := c.copyAll(tt.copy); err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			if diff := cmp.Diff(tt.want, contents(t, staging)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tt.reason, diff)
			}
		})
	}
}

func TestCopyRefuses(t *testing.T) {
	t.Parallel()
	repo := map[string]string{
		"a/one.yaml": "1", "two.yaml": "[2]",
		"up.tgz":   archive(t, tar.Header{Name: "../outside"}),
		"link.tgz": archive(t, tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}),
	}
	tests := map[string]struct {
		reason string
		op     operation
		want   error
		text   string
	}{
		"no file":              {"a pattern that selects nothing is a mistake", operation{From: "@repo/b/*", To: "@artifact/"}, ErrNoMatch, ""},
		"missing":              {"so is a file that is not there", operation{From: "@repo/b", To: "@artifact/"}, ErrNoMatch, ""},
		"all excluded":         {"so is a pattern whose matches are all excluded", operation{From: "@repo/a/**", To: "@artifact/", Exclude: []string{"*.yaml"}}, ErrNoMatch, ""},
		"bad pattern":          {"a bracket is open", operation{From: "@repo/[a", To: "@artifact/"}, ErrPattern, ""},
		"bad exclude":          {"a bracket is open", operation{From: "@repo/a/**", To: "@artifact/", Exclude: []string{"[a"}}, ErrPattern, ""},
		"expensive":            {"the number of combinations has a limit", operation{From: "@repo/a/**", To: "@artifact/", Exclude: []string{strings.Repeat("{a,b}", maxAlternatives+1)}}, ErrPattern, ""},
		"unknown alias":        {"the alias is the source", operation{From: "@other/a", To: "@artifact/"}, nil, "alias other"},
		"no alias":             {"a path needs an alias", operation{From: "a/one.yaml", To: "@artifact/"}, ErrPattern, ""},
		"not in the artifact":  {"a destination starts with @artifact/", operation{From: "@repo/two.yaml", To: "/tmp/x"}, ErrPattern, ""},
		"destination above":    {"a destination stays in the artifact", operation{From: "@repo/two.yaml", To: "@artifact/a/../../x"}, ErrEscape, ""},
		"destination absolute": {"a destination stays in the artifact", operation{From: "@repo/two.yaml", To: "@artifact//tmp/x"}, ErrEscape, ""},
		"source above":         {"a source stays in its folder", operation{From: "@repo/../../etc/passwd", To: "@artifact/"}, nil, "escapes"},
		"archive above":        {"an archive stays in its folder", operation{From: "@repo/up.tgz", To: "@artifact/a/", Strategy: extractStrategy}, ErrEscape, ""},
		"archive with a link":  {"a link could lead anywhere", operation{From: "@repo/link.tgz", To: "@artifact/", Strategy: extractStrategy}, nil, "link"},
		"extract a folder":     {"only archives can be extracted", operation{From: "@repo/a", To: "@artifact/", Strategy: extractStrategy}, nil, "folder"},
		"extract a text":       {"only archives can be extracted", operation{From: "@repo/two.yaml", To: "@artifact/", Strategy: extractStrategy}, nil, "no .tar.gz"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := copier{map[string]*os.Root{"repo": newRoot(t, repo)}, newRoot(t, nil), newBudget()}
			err := c.copyAll([]operation{tt.op})
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: got %v, want %v %s", tt.reason, err, tt.want, tt.text)
			}
		})
	}
}

// TestBounds checks the limits of copies and of archives.
func TestBounds(t *testing.T) {
	t.Parallel()
	repo := newRoot(t, map[string]string{"a": "12345", "b": "12345", "bomb.tgz": archive(t, tar.Header{Name: "x", Size: 1 << 20})})
	for name, tt := range map[string]struct {
		op     operation
		budget budget
	}{
		"bytes":   {operation{From: "@repo/[ab]", To: "@artifact/"}, budget{bytes: 9, files: 10}},
		"files":   {operation{From: "@repo/[ab]", To: "@artifact/"}, budget{bytes: 100, files: 1}},
		"archive": {operation{From: "@repo/bomb.tgz", To: "@artifact/", Strategy: extractStrategy}, budget{bytes: 1 << 19, files: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := copier{map[string]*os.Root{"repo": repo}, newRoot(t, nil), &tt.budget}
			if err := c.copyAll([]operation{tt.op}); !errors.Is(err, ErrTooLarge) {
				t.Errorf("got %v, want %v", err, ErrTooLarge)
			}
		})
	}
}

// TestPack checks that the same content gives the same bytes, whatever the times of the files.
func TestPack(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a/b.yaml": "1", "c": "2", ".gitignore": "x", ".git/HEAD": "y"}
	var first, second bytes.Buffer
	from := newRoot(t, files)
	if err := pack(from, &first); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(from.Name(), "c"), fixedTime, fixedTime); err != nil {
		t.Fatal(err)
	}
	if err := pack(from, &second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the archives of the same content differ")
	}
	to := newRoot(t, nil)
	if err := unpack(&first, to, newBudget()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a/b.yaml": "1", "c": "2"}, contents(t, to)); diff != "" {
		t.Errorf("without Git's files: -want +got:\n%s", diff)
	}
}

// FuzzCopy checks that no operation writes or reads outside of the folders.
func FuzzCopy(f *testing.F) {
	for _, seed := range [][3]string{
		{"@repo/**", "@artifact/", "*.md"}, {"@repo/../secret", "@artifact/../x", "**"}, {"@repo/a/./b", "@artifact/a/../b/", "{a,b}/[c"},
		{"@repo//", "@artifact//", ""}, {"@repo/[!a]*", "@artifact/\x00", "\\"}, {"@repo/*/..", "@artifact/.", "../**"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, from, to, exclude string) {
		parent := newRoot(t, map[string]string{"secret": "secret", "repo/a/b": "public", "repo/c.md": "public", "artifact/.keep": ""})
		before := contents(t, parent)
		source, err := parent.OpenRoot("repo")
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		staging, err := parent.OpenRoot("artifact")
		if err != nil {
			t.Fatal(err)
		}
		defer staging.Close()
		for _, strategy := range []string{"", mergeStrategy, extractStrategy} {
			_ = copier{map[string]*os.Root{"repo": source}, staging, newBudget()}.copyAll([]operation{{From: from, To: to, Exclude: []string{exclude}, Strategy: strategy}})
		}
		for name, content := range contents(t, parent) {
			if strings.HasPrefix(name, "artifact/") {
				if strings.Contains(content, "secret") {
					t.Errorf("%s has the content of a file outside of the source", name)
				}
				continue
			}
			if before[name] != content {
				t.Errorf("%s was written", name)
			}
		}
	})
}

package network

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
)

// write creates files in a folder.
func write(t testing.TB, dir string, files ...string) string {
	t.Helper()
	for _, name := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("name: app\nversion: 1.0.0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestParseMap(t *testing.T) {
	t.Parallel()
	plain := write(t, t.TempDir(), "a.yaml", "odd=name/a.yaml")
	work := write(t, t.TempDir(), ".git/HEAD", "charts/Chart.yaml")
	charts := write(t, t.TempDir(), "app/Chart.yaml")
	chart := write(t, t.TempDir(), "Chart.yaml")
	packed := write(t, t.TempDir(), "app-1.0.0.tgz")
	for _, tc := range []struct {
		reason, value string
		want          Map
		err           string // part of it
	}{
		{"a branch makes a Git repository of any folder", "https://git.example.com/a/b#main=" + plain, Map{KindGit, "https://git.example.com/a/b", "main", plain}, ""},
		{"a branch may have a slash", "ssh://git@git.example.com/a/b#feature/x=" + plain, Map{KindGit, "ssh://git@git.example.com/a/b", "feature/x", plain}, ""},
		{"the short form of SSH", "git@git.example.com:a/b#main=" + plain, Map{KindGit, "git@git.example.com:a/b", "main", plain}, ""},
		{"a work tree is a Git repository", "https://git.example.com/a/b.git=" + work, Map{KindGit, "https://git.example.com/a/b.git", "", work}, ""},
		{"the first = splits", "https://git.example.com/a/b#main=" + plain + "/odd=name", Map{KindGit, "https://git.example.com/a/b", "main", plain + "/odd=name"}, ""},
		{"a folder of charts", "https://charts.example.com=" + charts, Map{KindHelm, "https://charts.example.com", "", charts}, ""},
		{"a chart", "https://charts.example.com/stable/=" + chart, Map{KindHelm, "https://charts.example.com/stable/", "", chart}, ""},
		{"packed charts", "http://charts.example.com:8080=" + packed, Map{KindHelm, "http://charts.example.com:8080", "", packed}, ""},
		{"an OCI artifact of any folder", "oci://oci.example.com/a/b=" + plain, Map{KindOCI, "oci://oci.example.com/a/b", "", plain}, ""},
		{"an OCI artifact with a tag", "oci://oci.example.com:5000/a:v1=" + work, Map{KindOCI, "oci://oci.example.com:5000/a:v1", "", work}, ""},
		{"nothing to split", "https://git.example.com/a/b", Map{}, "it must be URL[#BRANCH]=DIR"},
		{"no address", "=" + plain, Map{}, "it must be URL[#BRANCH]=DIR"},
		{"no folder", "https://git.example.com/a/b=", Map{}, "it must be URL[#BRANCH]=DIR"},
		{"a folder that is not there", "https://git.example.com/a/b#main=" + plain + "/missing", Map{}, "there is no folder"},
		{"a file", "https://git.example.com/a/b#main=" + plain + "/a.yaml", Map{}, "is not a folder"},
		{"a file at the address of a manifest", "https://raw.example.com/a/v1/crds.yaml=" + plain + "/a.yaml", Map{KindFile, "https://raw.example.com/a/v1/crds.yaml", "", plain + "/a.yaml"}, ""},
		{"a file is no repository", "https://git.example.com/a/b=" + plain + "/a.yaml", Map{}, "is not a folder"},
		{"a file's scheme", "ftp://raw.example.com/a.yaml=" + plain + "/a.yaml", Map{}, "is not the address of a file"},
		{"a folder that could be anything names the way out", "https://git.example.com/a/b=" + plain, Map{}, "write https://git.example.com/a/b#main="},
		{"no branch behind #", "https://git.example.com/a/b#=" + plain, Map{}, `"" behind # is not the name of a branch`},
		{"a branch that git refuses", "https://git.example.com/a/b#a..b=" + plain, Map{}, "is not the name of a branch"},
		{"a branch that looks like an option", "https://git.example.com/a/b#-x=" + plain, Map{}, "is not the name of a branch"},
		{"an OCI artifact has tags", "oci://oci.example.com/a#v1=" + plain, Map{}, "write its tag as oci://oci.example.com/a:v1"},
		{"an OCI artifact needs a repository", "oci://oci.example.com=" + plain, Map{}, "it must be oci://host/repository"},
		{"OCI repositories are in lower case", "oci://oci.example.com/A=" + plain, Map{}, "in lower case"},
		{"an OCI digest cannot be promised", "oci://oci.example.com/a@sha256:0=" + plain, Map{}, "it must be oci://host/repository"},
		{"a Git repository needs a path", "https://git.example.com#main=" + plain, Map{}, "needs a path"},
		{"a Git repository's scheme", "ftp://git.example.com/a#main=" + plain, Map{}, "scheme must be"},
		{"a Helm repository's scheme", "ftp://charts.example.com=" + charts, Map{}, "is not the address of a Helm repository"},
		{"a Helm repository without a host", "https:///charts=" + charts, Map{}, "is not the address of a Helm repository"},
		{"a Helm repository has no query", "https://charts.example.com/?a=" + charts, Map{}, "is not the address of a Helm repository"},
	} {
		got, err := ParseMap(tc.value)
		switch {
		case tc.err != "" && (!errors.Is(err, ErrMap) || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.err)
		case tc.err == "" && err != nil:
			t.Errorf("%s: %v", tc.reason, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestCheckMaps(t *testing.T) {
	t.Parallel()
	git := func(url, branch, dir string) Map { return Map{KindGit, url, branch, dir} }
	helm := func(url, dir string) Map { return Map{KindHelm, url, "", dir} }
	oci := func(url, dir string) Map { return Map{KindOCI, url, "", dir} }
	for _, tc := range []struct {
		reason string
		maps   []Map
		clash  bool
	}{
		{"nothing", nil, false},
		{"branches of a repository", []Map{git("https://e.com/a/b", "main", "/one"), git("https://e.com/a/b", "dev", "/two")}, false},
		{"a work tree and a branch beside it", []Map{git("https://e.com/a/b", "", "/one"), git("https://e.com/a/b", "dev", "/two")}, false},
		{"a branch twice", []Map{git("https://e.com/a/b", "main", "/one"), git("https://e.com/a/b", "main", "/two")}, true},
		{"a branch twice, written differently", []Map{git("https://E.com:443/a/b.git/", "main", "/one"), git("git@e.com:a/b", "main", "/two")}, true},
		{"two work trees", []Map{git("https://e.com/a/b", "", "/one"), git("https://e.com/a/b", "", "/two")}, true},
		{"Git and Helm on one host", []Map{git("https://e.com/a/b", "main", "/one"), helm("https://e.com", "/two"), helm("https://e.com/charts", "/three")}, false},
		{"Git and Helm at one address", []Map{git("https://e.com/a/b", "main", "/one"), helm("https://e.com/a/b/", "/two")}, true},
		{"Helm and Git at one address", []Map{helm("https://e.com/a/b", "/two"), git("https://e.com/a/b.git", "main", "/one")}, true},
		{"a Helm repository twice", []Map{helm("https://e.com/charts", "/one"), helm("http://e.com/charts/", "/two")}, true},
		{"a host is served on all of its ports", []Map{helm("https://e.com/charts", "/one"), helm("https://e.com:8443/charts", "/two")}, true},
		{"tags of an artifact", []Map{oci("oci://e.com/a:v1", "/one"), oci("oci://e.com/a:v2", "/two")}, false},
		{"a tag twice", []Map{oci("oci://e.com/a:v1", "/one"), oci("oci://E.com:443/a:v1", "/two")}, true},
		{"an artifact lives apart from a repository", []Map{oci("oci://e.com/a/b", "/one"), git("https://e.com/a/b", "main", "/two")}, false},
	} {
		err := CheckMaps(tc.maps)
		if !tc.clash {
			if err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			continue
		}
		if !errors.Is(err, ErrMap) || !strings.Contains(err.Error(), "/one") || !strings.Contains(err.Error(), "/two") {
			t.Errorf("%s: got %v, want an error that names both folders", tc.reason, err)
		}
	}
}

// FuzzParseMap checks that each address that ParseMap accepts can be served, and
// that ParseMap never panics.
func FuzzParseMap(f *testing.F) {
	plain := write(f, f.TempDir(), "a.yaml")
	charts := write(f, f.TempDir(), "Chart.yaml")
	for _, address := range []string{
		"https://git.example.com/a/b#main", "git@e.com:a", "oci://e.com/a:v1", "https://charts.example.com", "https://[::1]:80/a#b/c", "ssh://e.com/%2e%2e/a#x", "#", "https://e.com/a?b#c",
	} {
		f.Add(address, false)
		f.Add(address, true)
	}
	f.Fuzz(func(t *testing.T, address string, chart bool) {
		dir := plain
		if chart {
			dir = charts
		}
		m, err := ParseMap(address + "=" + dir)
		if err != nil {
			if !errors.Is(err, ErrMap) || m != (Map{}) {
				t.Errorf("%v together with %+v", err, m)
			}
			return
		}
		host, path, err := m.Place()
		if err != nil || host == "" || hostOnly(host) == "" {
			t.Errorf("%+v is accepted and served at %q %q, %v", m, host, path, err)
		}
		if path != "" && !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
			t.Errorf("%+v is served at the path %q", m, path)
		}
		switch m.Kind {
		case KindGit:
			_, err = githost.Address(m.URL)
		case KindOCI:
			_, err = ocihost.ParseAddress(m.URL)
		}
		if err != nil {
			t.Errorf("%+v is accepted and cannot be served: %v", m, err)
		}
		if err := CheckMaps([]Map{m}); err != nil {
			t.Errorf("%+v alone: %v", m, err)
		}
		if err := CheckMaps([]Map{m, m}); !errors.Is(err, ErrMap) {
			t.Errorf("%+v twice: %v", m, err)
		}
	})
}

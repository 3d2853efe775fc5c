package githost

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		url    string
		want   string // empty for an error
	}{
		"HTTPS":       {"the plain form", "https://github.com/acme/fleet", "github.com/acme/fleet"},
		"DotGit":      {".git is optional", "https://github.com/acme/fleet.git", "github.com/acme/fleet"},
		"Slashes":     {"slashes do not matter", "https://github.com//acme/fleet/", "github.com/acme/fleet"},
		"User":        {"users do not matter", "https://token:x@github.com/acme/fleet", "github.com/acme/fleet"},
		"HostCase":    {"host names have no case, paths do", "https://GitHub.com./Acme/fleet", "github.com/Acme/fleet"},
		"SSH":         {"the scheme does not matter", "ssh://git@github.com/acme/fleet", "github.com/acme/fleet"},
		"SCP":         {"git's own short form", "git@github.com:acme/fleet.git", "github.com/acme/fleet"},
		"SCPRoot":     {"an absolute path", "github.com:/acme/fleet.git", "github.com/acme/fleet"},
		"DefaultPort": {"the default port does not matter", "ssh://git@github.com:22/acme/fleet", "github.com/acme/fleet"},
		"Port":        {"another port does", "https://github.com:8443/acme/fleet", "github.com:8443/acme/fleet"},
		"IPv6":        {"an address instead of a name", "https://[2001:DB8::1]:443/acme/fleet", "[2001:db8::1]/acme/fleet"},
		"Escaped":     {"escapes are one more spelling", "https://github.com/ac%6De/fleet", "github.com/acme/fleet"},
		"Dots":        {"a path names no file", "https://github.com/../etc", ""},
		"EscapedDots": {"whatever the spelling", "https://github.com/%2e%2e/etc", ""},
		"NoPath":      {"a host is no repository", "https://github.com/", ""},
		"OnlyDotGit":  {"nothing remains", "https://github.com/.git", ""},
		"NoHost":      {"a path is no address", "https:///acme/fleet", ""},
		"Scheme":      {"files are not served", "file:///acme/fleet", ""},
		"Query":       {"a query is no part of an address", "https://github.com/acme/fleet?ref=x", ""},
		"DotHost":     {"a host is no folder", "https://../acme/fleet", ""},
		"Word":        {"a word is no address", "fleet", ""},
		"Path":        {"a path with a colon is no address", "./a:b", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Address(tc.url)
			if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != (tc.want == "") {
				t.Errorf("%s: error %v, -want +got:\n%s", tc.reason, err, diff)
			}
		})
	}
}

func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"https://github.com/acme/fleet.git", "git@github.com:acme/fleet", "ssh://[::1]:22/a", "https://h/%2e%2e/x", "h:p:q", "https://h:443:443/a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := parseAddress(raw)
		if err != nil {
			return
		}
		if a.host == "" || strings.ContainsAny(a.host, "/ ") || !sound(a.path) {
			t.Fatalf("%q became host %q, path %q", raw, a.host, a.path)
		}
		if strings.ContainsAny(a.path, "%?#") {
			return // the canonical form is not a valid URL
		}
		again, err := parseAddress("https://" + a.String())
		if err != nil || again != (address{a.host, strings.TrimSuffix(a.path, ".git")}) {
			t.Fatalf("%q became %q, which became %q (%v)", raw, a, again, err)
		}
	})
}

func sound(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return !strings.ContainsAny(path, "\x00\n\\")
}

// FuzzRequestPath requests any path. Only the mapped repository may answer, and no
// file may be opened: the state folder does not exist.
func FuzzRequestPath(f *testing.F) {
	for _, seed := range []string{"/acme/fleet", "/../../etc/passwd", "/acme/fleet.git/../../x", "//", "/acme/fleet/info/refs", "/acme/%2e%2e"} {
		f.Add(seed)
	}
	mapped := address{"git.example.com", "acme/fleet"}
	h := &Host{repositories: map[address]*repository{mapped: {address: mapped, path: "/nonexistent"}}}
	f.Fuzz(func(t *testing.T, path string) {
		repo, err := h.lookup("git.example.com", path)
		trimmed := strings.TrimSuffix(strings.Join(strings.FieldsFunc(path, func(r rune) bool { return r == '/' }), "/"), ".git")
		if (err == nil) != (trimmed == mapped.path) {
			t.Fatalf("lookup(%q) = %v, %v", path, repo, err)
		}
		if err == nil {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host, r.URL.Path, r.URL.RawQuery = "git.example.com", path+"/info/refs", "service=git-upload-pack"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound {
			t.Fatalf("%q: want 404, got %d", path, w.Code)
		}
	})
}

func FuzzParseCommand(f *testing.F) {
	for _, seed := range []string{
		"git-upload-pack '/acme/fleet.git'", "git upload-pack '/a'", "git-receive-pack /acme/fleet", `git-upload-pack '/it'\''s'`,
		"git-upload-pack 'a' 'b'", "git-upload-pack 'a'; id", "git-upload-pack --strict '/a'", "git-upload-pack '", "id",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		service, path, err := parseCommand(line)
		if err != nil {
			return
		}
		if !services[service] {
			t.Fatalf("%q asks for %q", line, service)
		}
		quoted := strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path)
		again, same, err := parseCommand(service + " '" + quoted + "'")
		if err != nil || again != service || same != path {
			t.Fatalf("%q is %q; quoted again it is %q (%v)", line, path, same, err)
		}
	})
}

func TestParseCommand(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason, line, service, path string
	}{
		"Git":      {"what git sends", "git-upload-pack '/acme/fleet.git'", uploadPack, "/acme/fleet.git"},
		"Receive":  {"a push", "git-receive-pack 'acme/fleet'", receivePack, "acme/fleet"},
		"Spaced":   {"the newer name of the program", "git upload-pack '/a'", uploadPack, "/a"},
		"Unquoted": {"other clients do not quote", "git-upload-pack /a", uploadPack, "/a"},
		"Quote":    {"git's way to write a quote", `git-upload-pack '/it'\''s'`, uploadPack, "/it's"},
		"Two":      {"one path only", "git-upload-pack 'a' 'b'", "", ""},
		"Shell":    {"there is no shell", "git-upload-pack 'a'; id", "", ""},
		"Bare":     {"no path", "git-upload-pack", "", ""},
		"Open":     {"a quote must end", "git-upload-pack 'a", "", ""},
		"Archive":  {"other programs are not run", "git-upload-archive 'a'", "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service, path, err := parseCommand(tc.line)
			if diff := cmp.Diff([]string{tc.service, tc.path}, []string{service, path}); diff != "" || (err != nil) != (tc.service == "") {
				t.Errorf("%s: error %v, -want +got:\n%s", tc.reason, err, diff)
			}
		})
	}
}

// FuzzRevision creates the same files twice, in different folders, orders and at
// different times, and once with one file changed.
func FuzzRevision(f *testing.F) {
	f.Add("app.yaml", "one", "dir/other", "two")
	f.Add("a b", "", "\xff", "\r\n")
	host, count := newFixture(f), 0
	f.Fuzz(func(t *testing.T, name1, text1, name2, text2 string) {
		content := files{}
		for name, text := range map[string]string{name1: text1, name2: text2} {
			if validPath(name) == nil && len(name) < 100 && !strings.HasPrefix(name, "z") {
				content[name] = text
			}
		}
		for name := range content {
			for other := range content {
				if strings.HasPrefix(other, name+"/") {
					return // a file cannot be a folder
				}
			}
		}
		revision := func(content files) string {
			dir := t.TempDir()
			write(t, dir, content)
			count++
			url := fmt.Sprintf("%s-%d", fleetURL, count)
			host.add(t, Mapping{URL: url, Branch: "main", Dir: dir})
			return host.head(t, url, "main")
		}
		first, second := revision(content), revision(maps.Clone(content))
		content["z"] = "changed"
		if third := revision(content); first != second || first == third {
			t.Fatalf("the same files gave %s and %s, others %s", first, second, third)
		}
	})
}

// TestRevisionIsStable checks that revisions are the same in all runs: these must
// never change.
func TestRevisionIsStable(t *testing.T) {
	t.Parallel()
	plain := t.TempDir()
	write(t, plain, files{"app.yaml": "one\n"})
	tree := workTreeOf(t, files{"app.yaml": "one\n"})
	write(t, tree, files{"app.yaml": "two\n"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL + "-plain", Branch: "main", Dir: plain})
	f.add(t, Mapping{URL: fleetURL + "-tree", Dir: tree})
	got := []string{f.head(t, fleetURL+"-plain", "main"), f.head(t, fleetURL+"-tree", "main")}
	want := []string{"1c4d7e9da49b170b9024cbc86d21593c8e9cb79d", "5ecee1dba56b32124663994f9da59b8f18a9c767"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("revisions: -want +got:\n%s", diff)
	}
}

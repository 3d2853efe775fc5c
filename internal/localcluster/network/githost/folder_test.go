package githost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
)

func TestAddErrors(t *testing.T) {
	t.Parallel()
	tree := workTreeOf(t, files{"sub/file": "x"})
	unborn, detached, plain, bare := t.TempDir(), workTreeOf(t, files{"a": "b"}), t.TempDir(), t.TempDir()
	git1(t, unborn, "init", "--quiet", "-b", "main")
	git1(t, detached, "checkout", "--quiet", "--detach")
	git1(t, bare, "init", "--quiet", "--bare")
	write(t, plain, files{"file": "x"})
	tests := map[string]struct {
		reason string
		m      Mapping
		want   string
	}{
		"Missing":   {"the folder must be named", Mapping{fleetURL, "", plain + "/none"}, plain + "/none"},
		"File":      {"a file holds no repository", Mapping{fleetURL, "main", plain + "/file"}, "is not a folder"},
		"Plain":     {"a branch makes a folder a repository", Mapping{fleetURL, "", plain}, "name the branch to serve it as, --map " + fleetURL + "#main=" + plain},
		"Subfolder": {"the top was probably meant", Mapping{fleetURL, "", tree + "/sub"}, "it lies in the one at " + tree},
		"Bare":      {"there are no files to follow", Mapping{fleetURL, "", bare}, "bare repository"},
		"Unborn":    {"there is nothing to serve", Mapping{fleetURL, "", unborn}, "branch main has no commit yet"},
		"Detached":  {"no branch follows the files", Mapping{fleetURL, "", detached}, "detached HEAD"},
		"Branch":    {"git would refuse it later", Mapping{fleetURL, "a..b", plain}, "not the name of a branch"},
		"URL":       {"no host", Mapping{"fleet", "", tree}, "needs a scheme"},
		"Scheme":    {"git's own protocol is not served", Mapping{"git://host/path", "", tree}, "https, http or ssh"},
	}
	f := newFixture(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := f.Add(t.Context(), tc.m)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: want an error with %q, got: %v", tc.reason, tc.want, err)
			}
		})
	}
	if hosts := f.Hosts(); len(hosts) > 0 {
		t.Errorf("Hosts after errors: %v", hosts)
	}
	// The refused mappings do not block others.
	f.add(t, Mapping{URL: fleetURL, Dir: tree})
	if err := f.Add(t.Context(), Mapping{URL: "git@git.example.com:acme/fleet.git", Dir: tree}); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("two work trees for one address: want an error that names both, got: %v", err)
	}
	if err := f.Add(t.Context(), Mapping{URL: fleetURL, Branch: "main", Dir: plain}); err == nil || !strings.Contains(err.Error(), "as branch main") {
		t.Errorf("two folders for one branch: want an error, got: %v", err)
	}
	clone := f.clone(t, fleetURL)
	if diff := cmp.Diff(git1(t, tree, "rev-parse", "HEAD"), git1(t, clone, "rev-parse", "HEAD")); diff != "" {
		t.Errorf("after a refused mapping: -want +got:\n%s", diff)
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		testprogram.AsNobody(t) // root can read everything
		return
	}
	for _, tc := range []struct {
		reason, branch     string
		committed, written files
	}{
		{"a folder that is committed", "", files{"secret/file": "x", "a": "b"}, nil},
		{"a folder that git does not know, which git only warns of", "", files{"a": "b"}, files{"secret/file": "x"}},
		{"a plain folder", "main", files{"secret/file": "x", "a": "b"}, nil},
	} {
		dir := workTreeOf(t, tc.committed)
		write(t, dir, tc.written)
		if err := os.Chmod(filepath.Join(dir, "secret"), 0); err != nil {
			t.Fatal(err)
		}
		f := newFixture(t)
		err := f.Add(t.Context(), Mapping{URL: fleetURL, Branch: tc.branch, Dir: dir})
		if err == nil || !strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: want an error that names the folder, got: %v", tc.reason, err)
		}
		if err := os.Chmod(filepath.Join(dir, "secret"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoGit(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := New(context.Background(), Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, ErrNoGit) || !strings.Contains(err.Error(), "install git") {
		t.Errorf("New without git: want ErrNoGit with a hint, got: %v", err)
	}
}

func TestPlainFolders(t *testing.T) {
	t.Parallel()
	main, team := t.TempDir(), t.TempDir()
	write(t, main, files{"app.yaml": "a\r\nb\r\n", ".gitattributes": "* text=auto ident\n", ".gitignore": "*.log\n", "x.log": "$Id$", "nested/f": "n"})
	git1(t, main, "init", "--quiet")
	git1(t, filepath.Join(main, "nested"), "init", "--quiet")
	if err := os.Symlink("/etc", filepath.Join(main, "link")); err != nil {
		t.Fatal(err)
	}
	write(t, team, files{"team.yaml": "t"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: main})
	f.add(t, Mapping{URL: fleetURL, Branch: "team/dev", Dir: team})
	clone := f.clone(t, fleetURL)
	if diff := cmp.Diff(".gitattributes .gitignore app.yaml link nested/f x.log", strings.ReplaceAll(git1(t, clone, "ls-files"), "\n", " ")); diff != "" {
		t.Errorf("files: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("a\r\nb\r\n", f.show(t, fleetURL, "main", "app.yaml")); diff != "" {
		t.Errorf("bytes: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("/etc", f.show(t, fleetURL, "main", "link")); diff != "" {
		t.Errorf("link: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("t", f.show(t, fleetURL, "team/dev", "team.yaml")); diff != "" {
		t.Errorf("second branch: -want +got:\n%s", diff)
	}
}

func TestOverlay(t *testing.T) {
	t.Parallel()
	dir := workTreeOf(t, files{"flux/gotk.yaml": "placeholder", "app.yaml": "one"})
	git1(t, dir, "branch", "staging")
	f := newFixture(t)
	if err := f.Overlay(t.Context(), fleetURL, "main", "flux/gotk.yaml", []byte("real")); err != nil {
		t.Fatal(err)
	}
	f.add(t, Mapping{URL: fleetURL, Dir: dir})
	if diff := cmp.Diff("real", f.show(t, fleetURL, "main", "flux/gotk.yaml")); diff != "" {
		t.Errorf("before Add: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("placeholder", f.show(t, fleetURL, "staging", "flux/gotk.yaml")); diff != "" {
		t.Errorf("another branch: -want +got:\n%s", diff)
	}
	if err := f.Overlay(t.Context(), fleetURL, "staging", "flux/gotk.yaml", []byte("also")); err != nil {
		t.Fatal(err)
	}
	changes := f.watch(t)
	write(t, dir, files{"app.yaml": "two"})
	next(t, changes, "an edit", moved("main"))
	for path, want := range (files{"flux/gotk.yaml": "real", "app.yaml": "two"}) {
		if diff := cmp.Diff(want, f.show(t, fleetURL, "main", path)); diff != "" {
			t.Errorf("%s after an edit: -want +got:\n%s", path, diff)
		}
	}
	if diff := cmp.Diff("also", f.show(t, fleetURL, "staging", "flux/gotk.yaml")); diff != "" {
		t.Errorf("later, a branch that is not checked out: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("placeholder", read(t, dir, "flux/gotk.yaml")); diff != "" {
		t.Errorf("the user's file: -want +got:\n%s", diff)
	}
	for _, path := range []string{"../x", "/x", ".git/config", "a/.GIT/hooks/x", ""} {
		if err := f.Overlay(t.Context(), fleetURL, "main", path, nil); err == nil {
			t.Errorf("Overlay(%q): want an error", path)
		}
	}
}

func TestCommit(t *testing.T) {
	t.Parallel()
	dir := workTreeOf(t, files{"app.yaml": "one", "old": "x"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Dir: dir})
	before := f.head(t, fleetURL, "main")
	edit := func(tree *Tree) error {
		content, err := tree.ReadFile("app.yaml")
		if err != nil {
			return err
		}
		if _, err := tree.ReadFile("none"); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("a file that is not there: want fs.ErrNotExist, got: %w", err)
		}
		return errors.Join(tree.WriteFile("app.yaml", append(content, " two"...)), tree.WriteFile("new/f", []byte("n")), tree.Remove("old"), tree.Remove("none"))
	}
	revision, err := f.Commit(t.Context(), fleetURL, "main", "attack", edit)
	if err != nil {
		t.Fatal(err)
	}
	clone := f.clone(t, fleetURL)
	got := git1(t, clone, "log", "--format=%H %s") + "\n" + git1(t, clone, "ls-files") + "\n" + read(t, clone, "app.yaml")
	want := revision + " attack\n" + before + " first\napp.yaml\nnew/f\none two"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	same, err := f.Commit(t.Context(), fleetURL, "main", "nothing", func(*Tree) error { return nil })
	if err != nil || same != revision {
		t.Errorf("a commit without a change: want %s, got %s, %v", revision, same, err)
	}
	// A refresh without changes in the folder keeps the commit.
	if _, err := f.onlyRepository(t).refresh(t.Context(), f.onlySource(t)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(revision, f.head(t, fleetURL, "main")); diff != "" {
		t.Errorf("after a look: -want +got:\n%s", diff)
	}
	if _, err := f.Commit(t.Context(), fleetURL, "none", "m", edit); err == nil {
		t.Error("Commit to a branch that is not there: want an error")
	}
}

func TestUnusualRepositories(t *testing.T) {
	t.Parallel()
	origin := workTreeOf(t, files{"app.yaml": "one", "big/file": "x", "skip/file": "y"})
	git1(t, origin, "commit", "--quiet", "--allow-empty", "-m", "second")
	tests := map[string]struct {
		reason string
		make   func(t *testing.T) string
		edited files // the files in the clone after app.yaml is set to "two"
	}{
		"Linked": {"in a linked work tree .git is a file", func(t *testing.T) string {
			dir := filepath.Join(t.TempDir(), "linked")
			own := filepath.Join(t.TempDir(), "own")
			git1(t, "", "clone", "--quiet", "--no-hardlinks", origin, own)
			git1(t, own, "worktree", "add", "--quiet", "-b", "feature", dir)
			return dir
		}, files{"big/file": "x"}},
		"Shallow": {"history may be cut off", func(t *testing.T) string {
			dir := filepath.Join(t.TempDir(), "shallow")
			git1(t, "", "clone", "--quiet", "--depth=1", "file://"+origin, dir)
			return dir
		}, files{"big/file": "x"}},
		"Sparse": {"files that are left out are not deleted", func(t *testing.T) string {
			dir := filepath.Join(t.TempDir(), "sparse")
			git1(t, "", "clone", "--quiet", "--no-hardlinks", origin, dir)
			git1(t, dir, "sparse-checkout", "set", "--sparse-index", "big")
			return dir
		}, files{"big/file": "x", "skip/file": "y"}},
		"SplitIndex": {"an index in two files cannot be copied", func(t *testing.T) string {
			dir := filepath.Join(t.TempDir(), "split")
			git1(t, "", "clone", "--quiet", "--no-hardlinks", origin, dir)
			git1(t, dir, "update-index", "--split-index")
			return dir
		}, files{"big/file": "x"}},
		"SHA256": {"the newer object format", func(t *testing.T) string {
			dir := t.TempDir()
			git1(t, dir, "init", "--quiet", "-b", "main", "--object-format=sha256")
			write(t, dir, files{"app.yaml": "one", "big/file": "x"})
			git1(t, dir, "add", "-A")
			git1(t, dir, "commit", "--quiet", "-m", "first")
			return dir
		}, files{"big/file": "x"}},
		"Packed": {"references may be packed", func(t *testing.T) string {
			dir := filepath.Join(t.TempDir(), "packed")
			git1(t, "", "clone", "--quiet", "--no-hardlinks", origin, dir)
			git1(t, dir, "gc", "--quiet")
			return dir
		}, files{"big/file": "x"}},
		"TrackedIgnored": {"a tracked file may be ignored", func(t *testing.T) string {
			dir := workTreeOf(t, files{"app.yaml": "one", "forced": "f"})
			write(t, dir, files{".gitignore": "forced\n", ".git/info/exclude": "private\n", "private": "p", ".#app.yaml": "lock"})
			return dir
		}, files{"forced": "f"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tc.make(t)
			f := newFixture(t)
			before := snapshotOf(t, dir)
			f.add(t, Mapping{URL: fleetURL, Dir: dir})
			if diff := cmp.Diff(before, snapshotOf(t, dir)); diff != "" {
				t.Errorf("the folder was written to: -before +after:\n%s", diff)
			}
			if want := git1(t, dir, "rev-parse", "HEAD"); name != "TrackedIgnored" && want != f.head(t, fleetURL, "") {
				t.Errorf("%s: a clean work tree is not served as its own commit", tc.reason)
			}
			write(t, dir, files{"app.yaml": "two"})
			if _, err := f.onlyRepository(t).refresh(t.Context(), f.onlySource(t)); err != nil {
				t.Fatal(err)
			}
			clone := f.clone(t, fleetURL)
			tc.edited["app.yaml"] = "two"
			for path, want := range tc.edited {
				if diff := cmp.Diff(want, read(t, clone, path)); diff != "" {
					t.Errorf("%s: %s: -want +got:\n%s", tc.reason, path, diff)
				}
			}
			for _, path := range []string{"private", ".#app.yaml"} {
				if _, err := os.Lstat(filepath.Join(clone, path)); err == nil {
					t.Errorf("%s is served", path)
				}
			}
		})
	}
}

func TestHostileRepositoryRunsNothing(t *testing.T) {
	t.Parallel()
	proof := filepath.Join(t.TempDir(), "ran")
	script := filepath.Join(t.TempDir(), "script")
	testprogram.Write(t, script, []byte("#!/bin/sh\necho \"$0 $*\" >>"+proof+"\ncat\n"))
	dir := workTreeOf(t, files{".gitattributes": "* filter=evil diff=evil merge=evil\n", "app.yaml": "one"})
	sub := filepath.Join(dir, "sub")
	git1(t, dir, "clone", "--quiet", dir, sub)
	git1(t, dir, "add", "sub") // a gitlink, as of a submodule
	git1(t, dir, "commit", "--quiet", "-m", "submodule")
	write(t, sub, files{"app.yaml": "changed"})
	for _, repo := range []string{dir, sub} {
		for _, key := range []string{
			"core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "core.alternateRefsCommand", "core.gitProxy",
			"filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "diff.evil.command", "diff.external",
			"pager.for-each-ref", "pager.symbolic-ref", "credential.helper", "gpg.program", "uploadpack.packObjectsHook", "interactive.diffFilter",
		} {
			git1(t, repo, "config", key, script)
		}
		git1(t, repo, "config", "alias.for-each-ref", "!"+script)
		git1(t, repo, "config", "core.hooksPath", filepath.Join(repo, ".git", "hooks"))
		git1(t, repo, "config", "protocol.ext.allow", "always")
		git1(t, repo, "config", "remote.origin.url", "ext::"+script)
		git1(t, repo, "config", "remote.origin.promisor", "true")
		git1(t, repo, "config", "extensions.partialClone", "origin")
		git1(t, repo, "config", "core.repositoryFormatVersion", "1")
		for _, hook := range []string{"post-index-change", "reference-transaction", "pre-receive", "update", "post-receive", "pre-auto-gc", "fsmonitor-watchman", "proc-receive"} {
			copyFile(t, script, filepath.Join(repo, ".git", "hooks", hook))
		}
		write(t, repo, files{".git/info/attributes": "* filter=evil\n"})
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "folder")); err != nil {
		t.Fatal(err)
	}
	// This reference leads to an object that a partial clone would fetch.
	write(t, dir, files{".git/refs/heads/lazy": strings.Repeat("ab", 20) + "\n", "app.yaml": "two"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Dir: dir})
	changes := f.watch(t)
	settled(t, changes, dir)
	f.waitKept(t)
	clone := f.clone(t, fleetURL)
	for path, want := range map[string]string{"link": "/etc/passwd", "folder": "/etc"} {
		if got, err := os.Readlink(filepath.Join(clone, path)); err != nil || got != want {
			t.Errorf("%s: want a link to %s, got %q, %v", path, want, got, err)
		}
	}
	write(t, clone, files{"app.yaml": "pushed"})
	git1(t, clone, "commit", "--quiet", "-a", "-m", "push")
	if out, err := f.client(t, clone, "push", "--quiet", "origin", "main"); err != nil {
		t.Fatalf("git push: %v\n%s", err, out)
	}
	if ran, err := os.ReadFile(proof); err == nil {
		t.Errorf("the repository made us run:\n%s", ran)
	}
	// Positive control: git with the repository's own configuration runs the script.
	_, _ = tryGit(t, dir, "status")
	if _, err := os.ReadFile(proof); err != nil {
		t.Errorf("the test proves nothing: not even git status runs the script: %v", err)
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	testprogram.Write(t, to, content)
}

package githost

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// patience limits the waits of tests, which usually take a fraction of a second.
const patience = time.Minute

// watch starts Watch, which ends with the test, and returns its changes.
func (f *fixture) watch(t testing.TB) <-chan Change {
	t.Helper()
	changes := make(chan Change, 1000)
	ended := make(chan error, 1)
	ctx := t.Context() // ends before the cleanups run
	go func() { ended <- f.Watch(ctx, func(c Change) { changes <- c }) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	return changes
}

// next waits for a change that satisfies a condition and ignores others.
func next(t testing.TB, changes <-chan Change, reason string, ok func(Change) bool) Change {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case c := <-changes:
			if ok(c) {
				return c
			}
		case <-deadline:
			t.Fatalf("no change after %s: %s", patience, reason)
		}
	}
}

func moved(branch string) func(Change) bool {
	return func(c Change) bool { return c.Err == nil && c.Branch == branch }
}

func failed(c Change) bool { return c.Err != nil }

// settled waits until Watch follows a folder. From then on it must report all
// changes; the first refresh finds earlier changes.
func settled(t testing.TB, changes <-chan Change, dir string) {
	t.Helper()
	write(t, dir, files{"settled": t.Name()})
	next(t, changes, "Watch begins", func(c Change) bool { return c.Err == nil })
}

// overwrite replaces the content of a file by content of the same length, at once
// and in place, as some editors do.
func overwrite(t testing.TB, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestWatchFollowsWorkTree(t *testing.T) {
	t.Parallel()
	dir := workTreeOf(t, files{"app.yaml": "one", "deep/er/file": "x", ".gitignore": "ignored/\n"})
	git1(t, dir, "branch", "staging")
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Dir: dir})
	changes := f.watch(t)
	settled(t, changes, dir)
	steps := []struct {
		reason string
		branch string
		do     func()
		served files // files in the branch afterwards
	}{
		{"a file saved in place", "main", func() { overwrite(t, filepath.Join(dir, "app.yaml"), "two") }, files{"app.yaml": "two"}},
		{"a file in a new folder", "main", func() { write(t, dir, files{"new/folder/f": "n"}) }, files{"new/folder/f": "n"}},
		{"a later file in that folder", "main", func() { write(t, dir, files{"new/folder/g": "g"}) }, files{"new/folder/g": "g"}},
		{"a renamed folder", "main", func() { rename(t, filepath.Join(dir, "deep"), filepath.Join(dir, "moved")) }, files{"moved/er/file": "x"}},
		{"a file below the renamed folder", "main", func() { write(t, dir, files{"moved/er/file": "y"}) }, files{"moved/er/file": "y"}},
		{"an atomic replacement", "main", func() {
			write(t, dir, files{"app.yaml~": "three"})
			rename(t, filepath.Join(dir, "app.yaml~"), filepath.Join(dir, "app.yaml"))
		}, files{"app.yaml": "three"}},
		{"a commit", "main", func() { git1(t, dir, "add", "-A"); git1(t, dir, "commit", "--quiet", "-m", "second") }, files{"app.yaml": "three"}},
		{"another branch", "staging", func() { git1(t, dir, "branch", "-f", "staging", "main") }, files{"app.yaml": "three"}},
		{"a new branch with a slash", "team/a", func() { git1(t, dir, "branch", "team/a") }, files{"app.yaml": "three"}},
		{"a removed file", "main", func() { remove(t, filepath.Join(dir, "new")) }, files{"app.yaml": "three"}},
	}
	for _, s := range steps {
		s.do()
		c := next(t, changes, s.reason, moved(s.branch))
		if diff := cmp.Diff(f.head(t, fleetURL, s.branch), c.Revision); diff != "" {
			t.Errorf("%s: revision: -Head +notified:\n%s", s.reason, diff)
		}
		for path, want := range s.served {
			if diff := cmp.Diff(want, f.show(t, fleetURL, s.branch, path)); diff != "" {
				t.Errorf("%s: %s: -want +got:\n%s", s.reason, path, diff)
			}
		}
	}
	git1(t, dir, "checkout", "--quiet", "-f", "staging")
	write(t, dir, files{"app.yaml": "on staging"})
	c := next(t, changes, "a checkout and an edit", func(c Change) bool {
		return c.Branch == "staging" && c.Err == nil && f.show(t, fleetURL, "staging", "app.yaml") == "on staging"
	})
	if diff := cmp.Diff(c.Revision, f.head(t, fleetURL, "")); diff != "" {
		t.Errorf("the default branch does not follow the checkout: -want +got:\n%s", diff)
	}
}

func TestWatchSkipsIgnoredFolders(t *testing.T) {
	t.Parallel()
	dir := workTreeOf(t, files{"app.yaml": "one", ".gitignore": "ignored/\n"})
	write(t, dir, files{"ignored/a/b": "x"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Dir: dir})
	s := f.onlySource(t)
	w := &watcher{host: f.Host, watched: map[*source]*watched{}}
	defer w.close()
	x := &watched{repository: f.onlyRepository(t), source: s}
	if err := w.arm(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	for folder := range x.folders {
		if strings.Contains(folder, "ignored") {
			t.Errorf("an ignored folder is watched: %s", folder)
		}
	}
}

func TestWatchVanishedFolder(t *testing.T) {
	t.Parallel()
	for _, branch := range []string{"", "main"} {
		t.Run("branch "+branch, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "folder")
			rename(t, workTreeOf(t, files{"app.yaml": "one"}), dir)
			write(t, dir, files{"settled": t.Name()})
			git1(t, dir, "add", "-A")
			git1(t, dir, "commit", "--quiet", "-m", "second") // the history is lost with the folder
			f := newFixture(t)
			f.add(t, Mapping{URL: fleetURL, Branch: branch, Dir: dir})
			changes := f.watch(t)
			write(t, dir, files{"settled": "now"})
			next(t, changes, "Watch begins", moved("main"))
			last := f.head(t, fleetURL, "main")
			f.waitKept(t)

			rename(t, dir, dir+".away")
			c := next(t, changes, "the folder vanished", failed)
			if !strings.Contains(c.Err.Error(), dir) || !strings.Contains(c.Err.Error(), "bring it back") {
				t.Errorf("the error names neither the folder nor a way out: %v", c.Err)
			}
			for _, args := range [][]string{nil, {"--depth=1"}} {
				clone := f.clone(t, fleetURL, args...)
				if diff := cmp.Diff(last, git1(t, clone, "rev-parse", "HEAD")); diff != "" {
					t.Errorf("the last revision is not served with %v: -want +got:\n%s", args, diff)
				}
				if diff := cmp.Diff("one", read(t, clone, "app.yaml")); diff != "" {
					t.Errorf("app.yaml: -want +got:\n%s", diff)
				}
			}
			write(t, dir+".away", files{"app.yaml": "back"})
			rename(t, dir+".away", dir)
			next(t, changes, "the folder is back", moved("main"))
			if diff := cmp.Diff("back", read(t, f.clone(t, fleetURL), "app.yaml")); diff != "" {
				t.Errorf("app.yaml: -want +got:\n%s", diff)
			}
			write(t, dir, files{"app.yaml": "and followed"})
			next(t, changes, "an edit after that", moved("main"))
		})
	}
}

func TestWatchReportsRecoveryWithoutAChange(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "folder")
	write(t, dir, files{"app.yaml": "one"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: dir})
	changes := f.watch(t)
	rename(t, dir, dir+".away")
	next(t, changes, "the folder vanished", failed)
	rename(t, dir+".away", dir)
	c := next(t, changes, "the folder is back as it was", moved("main"))
	if diff := cmp.Diff(f.head(t, fleetURL, "main"), c.Revision); diff != "" {
		t.Errorf("revision: -want +got:\n%s", diff)
	}
}

// TestWatchRepeatsAFailedMove covers a reference that git cannot move at first, such as one
// that another program has locked.
func TestWatchRepeatsAFailedMove(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "folder")
	write(t, dir, files{"app.yaml": "one"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: dir})
	changes := f.watch(t)
	settled(t, changes, dir)
	lock := filepath.Join(f.onlyRepository(t).path, "refs", "heads", "main.lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, dir, files{"app.yaml": "two"})
	next(t, changes, "the reference is locked", failed)
	remove(t, lock)
	next(t, changes, "the reference is free", moved("main"))
	if diff := cmp.Diff("two", f.show(t, fleetURL, "main", "app.yaml")); diff != "" {
		t.Errorf("app.yaml: -want +got:\n%s", diff)
	}
}

// TestVanishedBeforeItsWatch covers a folder that vanishes after Watch finds it and
// before Watch requests events, and that comes back as the same folder. No event
// reports this.
func TestVanishedBeforeItsWatch(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "folder")
	write(t, dir, files{"app.yaml": "one"})
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: dir})
	var got []Change
	w := &watcher{host: f.Host, watched: map[*source]*watched{}, notify: func(c Change) { got = append(got, c) }}
	defer w.close()
	if _, ok := f.feed.open(); !ok {
		t.Fatal("the feed is open")
	}
	defer f.feed.close()
	x := &watched{repository: f.onlyRepository(t), source: f.onlySource(t), stale: true}
	w.watched[x.source] = x
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	rename(t, dir, dir+".away")
	w.refreshOne(t.Context(), x)
	x.rootIs, x.folders = before, map[string]bool{}
	rename(t, dir+".away", dir)
	if x.due.IsZero() {
		t.Fatal("no further look is planned")
	}
	w.refreshOne(t.Context(), x)
	if len(got) != 2 || got[0].Err == nil || got[1].Revision != f.head(t, fleetURL, "main") {
		t.Errorf("changes: want the error and then the revision, got %+v", got)
	}
	if !x.folders[dir] {
		t.Errorf("%s is not watched, only %v", dir, x.folders)
	}
}

func TestWatchFollowsFoldersAddedLater(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	changes := f.watch(t)
	dir := t.TempDir()
	write(t, dir, files{"app.yaml": "one"})
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: dir})
	write(t, dir, files{"app.yaml": "two"})
	next(t, changes, "a folder added while Watch runs", moved("main"))
}

func TestWatchOnlyOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	changes := f.watch(t)
	dir := t.TempDir()
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: dir})
	settled(t, changes, dir)
	if err := f.Watch(t.Context(), func(Change) {}); err == nil {
		t.Error("a second Watch: want an error")
	}
}

func TestScanning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: dir})
	// This source is scanned and never has an event.
	var got []Change
	w := &watcher{host: f.Host, watched: map[*source]*watched{}, notify: func(c Change) { got = append(got, c) }}
	if _, ok := f.feed.open(); !ok {
		t.Fatal("the feed is open")
	}
	defer f.feed.close()
	x := &watched{repository: f.onlyRepository(t), source: f.onlySource(t)}
	w.watched[x.source] = x
	w.limited(x, fmt.Errorf("%w: no more", ErrWatchLimit))
	w.refreshOne(t.Context(), x)
	write(t, dir, files{"app.yaml": "one"})
	if x.due.IsZero() {
		t.Fatal("no further look is planned")
	}
	w.refreshOne(t.Context(), x)
	if len(got) != 2 || !errors.Is(got[0].Err, ErrWatchLimit) || got[1].Revision != f.head(t, fleetURL, "main") {
		t.Errorf("changes: want the limit and then the revision, got %+v", got)
	}
}

// BenchmarkWatch measures the time from saving a file to the notification.
func BenchmarkWatch(b *testing.B) {
	dir := workTreeOf(b, files{"app.yaml": "one"})
	for i := range 100 {
		write(b, dir, files{fmt.Sprintf("folder-%d/file", i): "x"})
	}
	git1(b, dir, "add", "-A")
	git1(b, dir, "commit", "--quiet", "-m", "files")
	f := newFixture(b)
	f.add(b, Mapping{URL: fleetURL, Dir: dir})
	changes := f.watch(b)
	settled(b, changes, dir)
	i := 0
	for b.Loop() {
		i++
		write(b, dir, files{"app.yaml": fmt.Sprint(i)})
		next(b, changes, "an edit", moved("main"))
	}
}

// BenchmarkSnapshot measures a snapshot after a change of one file.
func BenchmarkSnapshot(b *testing.B) {
	dir := workTreeOf(b, files{"app.yaml": "one"})
	for i := range 100 {
		write(b, dir, files{fmt.Sprintf("folder-%d/file", i): "x"})
	}
	git1(b, dir, "add", "-A")
	git1(b, dir, "commit", "--quiet", "-m", "files")
	f := newFixture(b)
	f.add(b, Mapping{URL: fleetURL, Dir: dir})
	r, s := f.onlyRepository(b), f.onlySource(b)
	i := 0
	for b.Loop() {
		i++
		write(b, dir, files{"app.yaml": fmt.Sprint(i)})
		if _, err := r.refresh(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdd measures Add for a small folder.
func BenchmarkAdd(b *testing.B) {
	dir := workTreeOf(b, files{"app.yaml": "one", "a/b": "c"})
	f := newFixture(b)
	i := 0
	for b.Loop() {
		i++
		f.add(b, Mapping{URL: fmt.Sprintf("%s-%d", fleetURL, i), Dir: dir})
	}
}

// show returns a file of a served branch.
func (f *fixture) show(t testing.TB, url, branch, path string) string {
	t.Helper()
	a, err := parseAddress(url)
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.git.run(t.Context(), call{env: f.repository(a).env(), args: []string{"show", branchPrefix + branch + ":" + path}})
	if err != nil {
		t.Fatalf("%s of branch %s: %v", path, branch, err)
	}
	return out
}

func (f *fixture) onlyRepository(t testing.TB) *repository {
	t.Helper()
	for _, r := range f.repositories {
		return r
	}
	t.Fatal("no repository")
	return nil
}

func (f *fixture) onlySource(t testing.TB) *source { return f.onlyRepository(t).sources[0] }

// waitKept waits until the checked-out commit is copied.
func (f *fixture) waitKept(t testing.TB) {
	t.Helper()
	r, s := f.onlyRepository(t), f.onlySource(t)
	testwait.For(t, "the commit to be copied", patience, func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return s.plain() || s.kept == s.base.id, s.base.id
	})
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

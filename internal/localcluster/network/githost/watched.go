package githost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watched is a source with the folders that are watched for it.
type watched struct {
	repository *repository
	source     *source

	root    string      // the folder, links resolved
	rootIs  fs.FileInfo // what root was when the watches were set; nil if it was gone
	gitDir  string      // "" for a plain folder
	common  string
	folders map[string]bool // watched folders

	stale   bool // the watches need to be set anew
	scanned bool // events cannot be relied on
	first   time.Time
	due     time.Time // when to refresh; zero for not at all
}

// rootChanged says whether the mapped folder came, went or was replaced.
func (x *watched) rootChanged() bool {
	info, err := os.Stat(x.source.dir)
	if err != nil {
		return x.rootIs != nil
	}
	return x.rootIs == nil || !os.SameFile(info, x.rootIs)
}

// concerns says whether an event may change what the source's folder serves, and
// notes when folders to watch came or went.
func (x *watched) concerns(event fsnotify.Event) bool {
	folder, name := filepath.Split(event.Name)
	folder = filepath.Clean(folder)
	switch {
	case x.folders[event.Name] && event.Has(fsnotify.Remove|fsnotify.Rename):
		delete(x.folders, event.Name)
		x.stale = true
		return true
	case !x.folders[folder]:
		return false
	case x.gitDir != "" && x.inGit(folder):
		if strings.HasSuffix(name, ".lock") {
			return false
		}
		switch folder {
		case x.gitDir, x.common:
			// The index tells which files are tracked.
			return name == "HEAD" || name == "packed-refs" || name == "index" || name == "shallow"
		}
		x.stale = x.stale || event.Has(fsnotify.Create)
		return true
	case name == ".git":
		return false
	}
	if name == ".gitignore" {
		x.stale = true
	}
	if event.Has(fsnotify.Create) && !x.stale {
		info, err := os.Lstat(event.Name)
		x.stale = err == nil && info.IsDir()
	}
	return true
}

func (x *watched) inGit(folder string) bool {
	return within(folder, x.gitDir) || within(folder, x.common)
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+string(filepath.Separator))
}

// arm watches the folders of a source: those of its files, without what Git
// ignores, and the folders that hold its branches. It may be called again; only
// what changed costs system calls.
func (w *watcher) arm(ctx context.Context, x *watched) error {
	x.stale = false
	root, err := filepath.EvalSymlinks(x.source.dir)
	if err != nil {
		x.rootIs = nil
		return fmt.Errorf("cannot watch the folder: %w", err)
	}
	info, err := os.Stat(root)
	if err != nil {
		x.rootIs = nil
		return fmt.Errorf("cannot watch the folder: %w", err)
	}
	if x.rootIs == nil || !os.SameFile(info, x.rootIs) {
		w.disarm(x)
		x.folders = map[string]bool{}
	}
	x.root, x.rootIs, x.gitDir, x.common = root, info, "", ""
	if w.fs == nil {
		if w.fs, err = fsnotify.NewWatcher(); err != nil {
			return limit(err)
		}
	}
	wanted := map[string]bool{}
	if !x.source.plain() {
		if err := x.wantGit(wanted); err != nil {
			return err
		}
	}
	walk(root, wanted, w.ignored(ctx, x))
	// First, because a folder that was renamed has one watch under two names.
	for folder := range x.folders {
		if !wanted[folder] {
			w.remove(x, folder)
		}
	}
	for folder := range wanted {
		if x.folders[folder] {
			continue
		}
		switch err := w.fs.Add(folder); {
		case err == nil:
			x.folders[folder] = true
		case !errors.Is(err, fs.ErrNotExist):
			return limit(err)
		}
	}
	return nil
}

// wantGit adds the folders in which a commit or a checkout leaves its traces.
func (x *watched) wantGit(wanted map[string]bool) error {
	tree, err := findWorkTree(x.root)
	if err != nil || tree == nil {
		return err // refresh complains about a missing repository
	}
	if x.gitDir, err = filepath.EvalSymlinks(tree.gitDir); err != nil {
		return fmt.Errorf("cannot watch the repository: %w", err)
	}
	if x.common, err = filepath.EvalSymlinks(tree.commonDir); err != nil {
		return fmt.Errorf("cannot watch the repository: %w", err)
	}
	wanted[x.gitDir], wanted[x.common] = true, true
	for _, folder := range []string{"refs/heads", "refs/tags", "reftable"} {
		walk(filepath.Join(x.common, folder), wanted, nil)
	}
	return nil
}

// walk adds a folder and those below it. Folders that cannot be read are left
// out: the snapshot complains about them. Links are not followed.
func walk(root string, wanted, skip map[string]bool) {
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil
		}
		if path != root && (entry.Name() == ".git" || skip[path]) {
			return fs.SkipDir
		}
		wanted[path] = true
		return nil
	})
}

// ignored lists the folders that Git ignores as a whole, which are often the
// largest ones. Without an answer everything is watched.
func (w *watcher) ignored(ctx context.Context, x *watched) map[string]bool {
	if x.source.plain() {
		return nil
	}
	list, err := w.host.git.run(ctx, call{dir: x.root, env: x.source.stageEnv(x.repository.stores().all),
		args: []string{"ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"}})
	if err != nil {
		return nil
	}
	skip := map[string]bool{}
	for path := range strings.SplitSeq(list, "\x00") {
		if folder, ok := strings.CutSuffix(path, "/"); ok {
			skip[filepath.Join(x.root, filepath.FromSlash(folder))] = true
		}
	}
	return skip
}

func (w *watcher) disarm(x *watched) {
	for folder := range x.folders {
		w.remove(x, folder)
	}
}

// remove ends the watch of a folder unless another source wants it too.
func (w *watcher) remove(x *watched, folder string) {
	delete(x.folders, folder)
	for _, other := range w.watched {
		if other.folders[folder] {
			return
		}
	}
	// The folder may be gone, and its watch with it.
	_ = w.fs.Remove(folder)
}

// limit turns the system's way of saying that too much is watched into
// [ErrWatchLimit] with the way out. Other errors end in scanning too, since a
// folder that is not watched must not go unnoticed.
func limit(err error) error {
	hint := "see the system's limits"
	switch {
	case runtime.GOOS != "linux" && (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)):
		hint = "raise the limit of open files (ulimit -n)"
	case errors.Is(err, syscall.ENOSPC):
		hint = "raise fs.inotify.max_user_watches with sysctl"
	case errors.Is(err, syscall.EMFILE):
		hint = "raise fs.inotify.max_user_instances with sysctl, or the limit of open files (ulimit -n)"
	}
	return fmt.Errorf("%w: %w: %s", ErrWatchLimit, err, hint)
}

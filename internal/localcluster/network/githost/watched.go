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

// watched is a source with its watched folders.
type watched struct {
	repository *repository
	source     *source

	root    string      // the folder, with links resolved
	rootIs  fs.FileInfo // info of root when the watches were set; nil if it was gone
	gitDir  string      // "" for a plain folder
	common  string
	folders map[string]bool // watched folders

	stale   bool // the watches need an update
	scanned bool // events are not reliable
	first   time.Time
	due     time.Time // time of the scheduled refresh, or zero
}

// rootChanged reports whether the mapped folder appeared, vanished or was replaced.
func (x *watched) rootChanged() bool {
	info, err := os.Stat(x.source.dir)
	if err != nil {
		return x.rootIs != nil
	}
	return x.rootIs == nil || !os.SameFile(info, x.rootIs)
}

// concerns reports whether an event may change the served content of the source's
// folder. It sets stale if folders to watch appeared or vanished.
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
			// The index contains the list of tracked files.
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

// arm watches the folders of a source: the folders of its files, except those that
// Git ignores, and the folders with its branches. It may be called again; only
// changes cost system calls.
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
	// Remove first, because a renamed folder has one watch under two names.
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

// wantGit adds the folders that a commit or a checkout changes.
func (x *watched) wantGit(wanted map[string]bool) error {
	tree, err := findWorkTree(x.root)
	if err != nil || tree == nil {
		return err // refresh reports a missing repository
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

// walk adds a folder and its subfolders. It skips folders that cannot be read, which
// the snapshot reports. It does not follow links.
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

// ignored returns the folders that Git ignores as a whole, which are often the
// largest folders. If git fails, all folders are watched.
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

// remove ends the watch of a folder unless another source needs it.
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

// limit wraps an error of the system in [ErrWatchLimit], with a hint how to raise
// the limit. It wraps other errors too, so that a folder that cannot be watched is
// scanned.
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

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// DefaultName is the name of a cluster that is not given one.
const DefaultName = "default"

// maxSocketPath is the length that a Unix socket's path may have everywhere
// (macOS: 104 bytes with the final zero).
const maxSocketPath = 103

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

var (
	// ErrRunning says that a cluster of that name runs already.
	ErrRunning = errors.New("a cluster of that name is running")
	// ErrNotRunning says that no cluster of that name runs.
	ErrNotRunning = errors.New("no cluster of that name is running")
)

// Root returns the folder in which the running clusters of this user keep
// their state: $TENURE_HOME, or tenure in $XDG_RUNTIME_DIR, or tenure-UID in
// the folder for temporary files.
func Root() string {
	if dir := os.Getenv("TENURE_HOME"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return filepath.Join(dir, "tenure")
		}
	}
	return filepath.Join(os.TempDir(), "tenure-"+strconv.Itoa(os.Getuid()))
}

// State is the folder of one running cluster, locked by the process that runs
// it.
type State struct {
	// Dir is the folder. It goes with the cluster.
	Dir  string
	lock *os.File
}

// AcquireState makes and locks the state folder of a cluster. What a cluster of
// that name that was killed has left there is removed; while its processes are
// still being killed this waits. It fails with an error that wraps ErrRunning
// when the folder is in use.
func AcquireState(ctx context.Context, root, name string) (*State, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("%q cannot be a cluster's name: use up to 32 of a-z, 0-9 and -", name)
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("cannot make the state folder: %w", err)
	}
	dir := filepath.Join(root, name)
	if longest := filepath.Join(dir, "egress.sock"); len(longest) > maxSocketPath {
		return nil, fmt.Errorf("the path of the state folder %s is too long for sockets in it: set TENURE_HOME to a shorter one", dir)
	}
	lock, err := lockFile(ctx, root, name)
	if err != nil {
		return nil, err
	}
	s := &State{Dir: dir, lock: lock}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.Release())
	}
	return s, nil
}

// takeoverPatience is how long a lock may be held by nobody alive: by the reaper
// of a cluster that was killed, which waits for its processes, clears its folder and
// ends (two seconds or so, more on a busy machine), or for an instant by somebody who
// looks whether it is held.
const takeoverPatience = time.Minute

// lockFile opens and locks the cluster's file, which it makes if need be, in
// the folder root, which it makes too: the last cluster to end removes both.
func lockFile(ctx context.Context, root, name string) (*os.File, error) {
	deadline := time.Now().Add(takeoverPatience)
	for {
		if err := stateFolder(root); err != nil {
			return nil, err
		}
		lock, owner, err := tryLock(filepath.Join(root, name+".lock"))
		switch {
		case err == nil && lock != nil:
			return lock, nil
		case errors.Is(err, ErrRunning):
			if alive(owner) || time.Now().After(deadline) {
				return nil, fmt.Errorf("%w: %s (process %d); stop it with `tenure down --name %s`, or choose another --name", ErrRunning, name, owner, name)
			}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("cannot lock the state folder: %w; set TENURE_HOME to a folder that you can write to", err)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tryLock returns the locked file, or ErrRunning and who holds it, or neither
// when the file that was locked is not that of the name any more: a cluster that
// ends removes its file, so one that was opened just before is locked in vain.
func tryLock(file string) (*os.File, int, error) {
	lock, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, 0, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		owner := readPID(lock)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrRunning
		}
		return nil, owner, errors.Join(err, lock.Close())
	}
	if !names(file, lock) {
		return nil, 0, lock.Close()
	}
	return lock, 0, nil
}

// names says whether the path still leads to the open file.
func names(path string, f *os.File) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(path)
	return err == nil && os.SameFile(opened, current)
}

// alive says whether a process exists. That of another user does.
func alive(pid int) bool {
	return pid > 1 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// Paths are the folder and its lock, for whoever cleans up when the process
// that holds the state dies.
func (s *State) Paths() []string { return []string{s.Dir, s.lock.Name()} }

func (s *State) prepare() error {
	if err := os.RemoveAll(s.Dir); err != nil {
		return fmt.Errorf("cannot clear the state folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, "log"), 0o700); err != nil {
		return fmt.Errorf("cannot make the state folder: %w", err)
	}
	if err := s.lock.Truncate(0); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	if _, err := s.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	return nil
}

// Release removes the folder and gives up its lock, in this order: whoever gets
// the lock finds nothing of ours.
func (s *State) Release() error {
	err := errors.Join(os.RemoveAll(s.Dir), os.Remove(s.lock.Name()), s.lock.Close())
	// The last cluster takes the root with it; others keep it.
	_ = os.Remove(filepath.Dir(s.Dir))
	return err
}

// stateFolder makes sure that there is a private folder for state.
func stateFolder(dir string) error {
	if err := privateFolder(dir); err != nil {
		return fmt.Errorf("cannot use the state folder: %w; or set TENURE_HOME to another folder", err)
	}
	return nil
}

// privateFolder makes a folder that its owner alone can enter, or makes sure
// that an existing one is: others on this machine could otherwise put their
// own files in the place of ours. Its errors end in what to do.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: choose a place that you can write to", err)
	}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return privateFolder(dir) // somebody who ended has just removed it
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder: remove it", dir)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to another user: remove it", dir)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s can be entered by others (mode %04o): run `chmod 700 %s`", dir, mode, dir)
	}
	return nil
}

// Stop asks the process that runs the named cluster to end, waits until it
// has, and kills it when the patience is over (its children die with it).
// It fails with an error that wraps ErrNotRunning when there is none.
func Stop(root, name string, patience time.Duration) error {
	lock, err := os.Open(filepath.Join(root, name+".lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotRunning, name)
	}
	if err != nil {
		return fmt.Errorf("cannot stop cluster %s: %w", name, err)
	}
	defer lock.Close()
	free := func() bool { return syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil }
	if free() {
		// Left by one that was killed, reaper and all. Whoever starts now
		// finds the lock taken and waits; one that started before the lock
		// was taken has a file of its own.
		if names(lock.Name(), lock) {
			_ = os.RemoveAll(filepath.Join(root, name))
			_ = os.Remove(lock.Name())
			_ = os.Remove(root)
		}
		return fmt.Errorf("%w: %s", ErrNotRunning, name)
	}
	pid := readPID(lock)
	if pid <= 1 {
		return fmt.Errorf("cannot stop cluster %s: it has just begun to start, try again", name)
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("cannot stop cluster %s: %w", name, err)
		}
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if free() {
				return nil
			}
		}
	}
	return fmt.Errorf("cannot stop cluster %s: process %d does not end", name, pid)
}

// Running returns the names of the running clusters under root, sorted.
func Running(root string) ([]string, error) {
	locks, err := filepath.Glob(filepath.Join(root, "*.lock"))
	if err != nil {
		return nil, fmt.Errorf("cannot list clusters: %w", err)
	}
	var names []string
	for _, file := range locks {
		lock, err := os.Open(file)
		if err != nil {
			continue // it has just ended
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil {
			names = append(names, strings.TrimSuffix(filepath.Base(file), ".lock"))
		}
		lock.Close()
	}
	return names, nil
}

func readPID(f *os.File) int {
	buf := make([]byte, 16)
	n, _ := f.ReadAt(buf, 0)
	pid, _ := strconv.Atoi(string(buf[:n]))
	return pid
}

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

// DefaultName is the default name of a cluster.
const DefaultName = "default"

// VerifyPrefix begins the names of the clusters of `tenure verify`; its process ID is the rest.
const VerifyPrefix = "verify-"

// maxSocketPath is the maximum length of a Unix socket's path on all systems (macOS:
// 104 bytes with the final zero).
const maxSocketPath = 103

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

var (
	// ErrRunning reports that a cluster of this name runs already.
	ErrRunning = errors.New("a cluster of that name is running")
	// ErrNotRunning reports that no cluster of this name runs.
	ErrNotRunning = errors.New("no local cluster of this name is running")
)

// Root returns the folder with the state of this user's running clusters:
// $TENURE_HOME, or tenure in $XDG_RUNTIME_DIR, or tenure-UID in the folder for
// temporary files.
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

// State is the folder of one running cluster. The process that runs the cluster
// holds its lock.
type State struct {
	// Dir is the folder. It is removed with the cluster.
	Dir  string
	lock *os.File
}

// AcquireState creates and locks the state folder of a cluster. It removes the files
// of a killed cluster of the same name, and waits while that cluster's processes are
// still being killed. It returns an error that wraps ErrRunning when the folder is
// in use.
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

// takeoverPatience limits the wait for a lock that no live cluster holds. The reaper
// of a killed cluster holds the lock until it has killed the processes and removed
// the folder, which takes about two seconds, more on a busy machine. [Stop] and
// [Running] hold the lock for an instant when they test it.
const takeoverPatience = time.Minute

// lockFile opens and locks the lock file of a cluster. It creates the file and the
// folder root if they do not exist: the last cluster to end removes both.
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

// tryLock returns the locked file, or ErrRunning and the process ID of the lock's
// holder. It returns neither if it locked a file that a cluster removed at its end,
// after tryLock had opened it.
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

// names reports whether the path still leads to the open file.
func names(path string, f *os.File) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(path)
	return err == nil && os.SameFile(opened, current)
}

// alive reports whether a process exists, of this user or of another.
func alive(pid int) bool {
	return pid > 1 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// Paths returns the paths of the folder and its lock file, for the reaper that
// removes them when the process with the lock dies.
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

// Release removes the folder and then releases its lock. The next process with the lock finds no
// files of this cluster. It returns the errors of both steps.
func (s *State) Release() error {
	err := errors.Join(os.RemoveAll(s.Dir), os.Remove(s.lock.Name()))
	// This succeeds for the last cluster only: for others the folder is not empty. [Stop]
	// returns when the lock is free, so the lock comes last.
	_ = os.Remove(filepath.Dir(s.Dir))
	return errors.Join(err, s.lock.Close())
}

// stateFolder creates or checks the private folder for state.
func stateFolder(dir string) error {
	if err := privateFolder(dir); err != nil {
		return fmt.Errorf("cannot use the state folder: %w; or set TENURE_HOME to another folder", err)
	}
	return nil
}

// privateFolder creates a folder that only its owner can enter, or checks that an
// existing folder is one. In an open folder other users could replace our files. Its
// errors end with advice.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: choose a place that you can write to", err)
	}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return privateFolder(dir) // a cluster that ended has just removed it
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

// Stop sends SIGTERM to the process that runs the named cluster and waits until it
// ends. After the patience it sends SIGKILL; the children die with the process. Stop
// returns an error that wraps ErrNotRunning if no cluster runs.
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
		// The lock belongs to a cluster that was killed together with its reaper. A
		// cluster that starts now finds the lock taken and waits. A cluster that
		// started before has a lock file of its own.
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

// Running returns the names of the running clusters under root, sorted. It returns an error only if root cannot be part of a pattern of files.
func Running(root string) ([]string, error) {
	locks, err := filepath.Glob(filepath.Join(root, "*.lock"))
	if err != nil {
		return nil, fmt.Errorf("cannot list clusters: %w", err)
	}
	var names []string
	for _, file := range locks {
		lock, err := os.Open(file)
		if err != nil {
			continue // the cluster has just ended
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

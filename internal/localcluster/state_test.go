package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets the test program also be a process that holds a state folder.
func TestMain(m *testing.M) {
	if root := os.Getenv("TENURE_TEST_HOLD"); root != "" {
		os.Exit(hold(root))
	}
	os.Exit(m.Run())
}

// hold acquires a state folder, prints "held", and waits for SIGTERM.
func hold(root string) int {
	s, err := AcquireState(context.Background(), root, "held")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	fmt.Println("held")
	<-ended
	if err := s.Release(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// startHolder starts a process that holds the cluster "held" under root.
func startHolder(t *testing.T, root string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TENURE_TEST_HOLD="+root)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said := make([]byte, 100)
	if n, err := out.Read(said); err != nil || string(said[:n]) != "held\n" {
		t.Fatalf("the holder says %q (%v)", said[:n], err)
	}
	return cmd
}

func absent(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left (%v)", path, err)
		}
	}
}

func TestAcquireStateRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	open := filepath.Join(t.TempDir(), "open")
	link := filepath.Join(t.TempDir(), "link")
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(open, 0o700), os.Chmod(open, 0o755), os.Symlink(t.TempDir(), link)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason     string
		root, name string
		want       []string
	}{
		"File":       {"A file in the place of the folder is the user's.", file, "x", []string{file, "TENURE_HOME"}},
		"BelowAFile": {"Nothing can be made below a file.", filepath.Join(file, "x"), "x", []string{file, "not a directory", "TENURE_HOME"}},
		"Open":       {"Others could put their files in the place of ours.", open, "x", []string{open, "mode 0755", "chmod 700", "TENURE_HOME"}},
		"Link":       {"A link can be turned elsewhere by who owns it.", link, "x", []string{link, "not a folder", "TENURE_HOME"}},
		"TooLong":    {"A socket's path is bounded.", long, "x", []string{long, "too long", "TENURE_HOME"}},
		"BadName":    {"A name becomes part of paths.", t.TempDir(), "../x", []string{`"../x"`, "a-z"}},
		"LongName":   {"A name becomes part of socket paths.", t.TempDir(), strings.Repeat("x", 33), []string{"up to 32"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := AcquireState(t.Context(), tc.root, tc.name)
			if err == nil {
				t.Fatalf("%s: acquired %s", tc.reason, s.Dir)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q does not say %q", tc.reason, err, want)
				}
			}
		})
	}
	absent(t, long)
}

func TestAcquireStateOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := "/" // root owns it, and only root can give a folder away
	if os.Getuid() == 0 {
		dir = t.TempDir()
		if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := AcquireState(t.Context(), dir, "x"); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("got %v, want a refusal that says whose folder it is", err)
	}
}

func TestSecondOfTheSameName(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	holder := startHolder(t, root)
	_, err := AcquireState(t.Context(), root, "held")
	if !errors.Is(err, ErrRunning) {
		t.Fatalf("got %v, want %v", err, ErrRunning)
	}
	for _, want := range []string{"held", strconv.Itoa(holder.Process.Pid), "tenure down --name held"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	other, err := AcquireState(t.Context(), root, "other")
	if err != nil {
		t.Fatalf("cannot run one of another name beside it: %v", err)
	}
	running, err := Running(root)
	if diff := cmp.Diff([]string{"held", "other"}, running); diff != "" || err != nil {
		t.Errorf("running clusters (-want +got):\n%s%v", diff, err)
	}
	if err := other.Release(); err != nil {
		t.Error(err)
	}
	absent(t, other.Dir)
	if err := Stop(root, "held", 10*time.Second); err != nil {
		t.Error(err)
	}
	absent(t, root)
	if err := Stop(root, "held", time.Second); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a second stop: got %v, want %v", err, ErrNotRunning)
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	holder := startHolder(t, root)
	// A stopped process reacts to SIGKILL only.
	if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := Stop(root, "held", 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := holder.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the holder ended with %v, want it killed", err)
	}
}

func TestStaleStateIsTakenOver(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	holder := startHolder(t, root)
	leftover := filepath.Join(root, "held", "leftover")
	if err := os.WriteFile(leftover, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if running, err := Running(root); err != nil || len(running) > 0 {
		t.Errorf("running: %v (%v), want none", running, err)
	}
	s, err := AcquireState(t.Context(), root, "held")
	if err != nil {
		t.Fatal(err)
	}
	absent(t, leftover)
	if err := s.Release(); err != nil {
		t.Error(err)
	}
	absent(t, root)
}

func TestStopRemovesStaleState(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	holder := startHolder(t, root)
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if err := Stop(root, "held", time.Second); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v, want %v", err, ErrNotRunning)
	}
	absent(t, root)
}

// TestAcquireStateWaitsForTheDead covers the lock of a dead process, which the
// reaper holds for a while.
func TestAcquireStateWaitsForTheDead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	dead := exec.Command(os.Args[0], "-test.run=^$")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	noForks(t)
	lock, err := os.Create(filepath.Join(root, "x.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(lock, dead.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(fs.ErrClosed)
	if _, err := AcquireState(interrupted, root, "x"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("interrupted: got %v, want the cause", err)
	}
	synctest.Test(t, func(t *testing.T) {
		// A reaper never holds the lock this long, not even on a busy machine.
		time.AfterFunc(30*time.Second, func() { _ = lock.Close() })
		s, err := AcquireState(t.Context(), root, "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Release(); err != nil {
			t.Error(err)
		}
	})
}

// noForks keeps other tests from starting processes until the test ends. A new
// process holds the open files of this process, and their locks, until it executes
// its own program.
func noForks(t *testing.T) {
	t.Helper()
	syscall.ForkLock.RLock()
	t.Cleanup(syscall.ForkLock.RUnlock)
}

// TestAcquireAndReleaseInTurns checks that two clusters of one name never hold the
// state together, and that none fails because another one removes the folder.
func TestAcquireAndReleaseInTurns(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	var holders sync.WaitGroup
	var mu sync.Mutex
	held, turns := 0, 0
	for range 4 {
		holders.Go(func() {
			for range 50 {
				s, err := AcquireState(t.Context(), root, "x")
				if errors.Is(err, ErrRunning) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				held++
				turns++
				if held > 1 {
					t.Error("two hold the same state")
				}
				mu.Unlock()
				if _, err := os.Stat(filepath.Join(s.Dir, "log")); err != nil {
					t.Errorf("the folder was taken away: %v", err)
				}
				mu.Lock()
				held--
				mu.Unlock()
				if err := s.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	holders.Wait()
	if turns == 0 {
		t.Error("nobody ever held the state")
	}
	absent(t, root)
}

func TestAcquireData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	noForks(t)
	lock, err := acquireData(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = acquireData(dir)
	if !errors.Is(err, ErrDataInUse) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--data") {
		t.Errorf("in use: got %v, want an error that names the folder and the flag", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := acquireData(dir)
	if err != nil {
		t.Fatalf("not in use any more: %v", err)
	}
	_ = again.Close()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = acquireData(dir)
	if err == nil || !strings.Contains(err.Error(), "chmod 700") || strings.Contains(err.Error(), "TENURE_HOME") {
		t.Errorf("open to others: got %v, want a hint about this folder", err)
	}
}

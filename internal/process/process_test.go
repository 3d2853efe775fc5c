package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// TestMain runs the test program also as a reaper, and as a parent that a test kills.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "reap":
			RunReaper(os.Stdin, os.Args[2:])
			os.Exit(0)
		case "parent":
			os.Exit(parent(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

func reaper() []string { return []string{os.Args[0], "reap"} }

// parent starts a child and a grandchild, writes their PIDs and waits to be
// killed.
func parent(dir string) int {
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	g, err := NewGroup(Options{Reaper: reaper(), Remove: []string{filepath.Join(dir, "root", "state")}, Hold: []*os.File{lock}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	script := fmt.Sprintf(`sleep 300 & echo $! > %[1]s/grandchild; echo $$ > %[1]s/child.tmp; mv %[1]s/child.tmp %[1]s/child; wait`, dir)
	if _, err := g.Start(shell(dir, "child", script)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

func shell(dir, name, script string) Spec {
	return Spec{
		Name: name, Path: "/bin/sh", Args: []string{"-c", script},
		Env: []string{"PATH=/usr/bin:/bin"}, Log: filepath.Join(dir, name+".log"),
	}
}

func newGroup(t *testing.T) *Group {
	t.Helper()
	g, err := NewGroup(Options{Reaper: reaper()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			t.Errorf("cannot close the group: %v", err)
		}
	})
	return g
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	testwait.For(t, what, time.Minute, func() (bool, string) { return done(), "it has not happened" })
}

func pid(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// gone reports whether a process has ended. A process whose parent died is a zombie until init
// reaps it, which init in some containers never does.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestChildrenDieWithKilledParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "root", "state")
	if err := os.MkdirAll(filepath.Join(state, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "parent", dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the child to start", func() bool {
		_, err := os.Stat(filepath.Join(dir, "child"))
		return err == nil
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	await(t, "the lock to be given up", func() bool {
		return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	})
	if _, err := os.Stat(filepath.Dir(state)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock was given up before the state folder was removed, and the empty one above it: %v", err)
	}
	await(t, "the child to die", func() bool { return gone(pid(t, filepath.Join(dir, "child"))) })
	await(t, "the grandchild to die", func() bool { return gone(pid(t, filepath.Join(dir, "grandchild"))) })
}

func TestCloseKillsWhatDoesNotListen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, err := NewGroup(Options{Reaper: reaper(), Remove: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	spec := shell(dir, "deaf", `trap "" TERM; echo ready; while :; do sleep 0.1; done`)
	spec.StopTimeout = 50 * time.Millisecond
	p, err := g.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the child to be deaf", func() bool { return len(Tail(spec.Log, 1)) > 0 && Tail(spec.Log, 1)[0] == "ready" })
	if err := g.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !gone(p.PID()) {
		t.Error("the child outlived its group")
	}
	if got, want := p.ExitCode(), 128+int(syscall.SIGKILL); got != want {
		t.Errorf("exit code %d, want %d", got, want)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("an orderly end removed the folder: %v", err)
	}
	if _, err := g.Start(spec); !errors.Is(err, errClosed) {
		t.Errorf("Start after Close: got %v, want %v", err, errClosed)
	}
}

func TestKeepRestartsAndGivesUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := newGroup(t)
	crashes := make(chan *CrashError, 10)
	restart := Restart{First: time.Millisecond, Max: 2, Healthy: time.Hour}
	if _, err := g.Keep(shell(dir, "crasher", "echo last words; exit 3"), restart, func(e *CrashError) { crashes <- e }); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		crash := <-crashes
		if got, want := crash.GaveUp, i == 2; got != want {
			t.Fatalf("crash %d: gave up: %v, want %v", i, got, want)
		}
		var exit *exec.ExitError
		if !errors.As(crash, &exit) || exit.ExitCode() != 3 {
			t.Errorf("crash %d: got %v, want exit code 3", i, crash.Err)
		}
		if !strings.Contains(strings.Join(crash.Tail, "\n"), "last words") {
			t.Errorf("crash %d: its tail lacks the log: %q", i, crash.Tail)
		}
	}
}

func TestCrashErrorMessage(t *testing.T) {
	t.Parallel()
	tail := []string{"one", "two"}
	for _, tc := range []struct {
		reason string
		crash  CrashError
		want   string
	}{
		{"It is restarted, so its last words do not matter yet.", CrashError{Name: "x", Tail: tail}, "x ended (exit code 0) and is restarted"},
		{"Given up at the first crash.", CrashError{Name: "x", Err: errClosed, GaveUp: true, Tail: tail}, "x ended (" + errClosed.Error() + "); its last words:\n  one\n  two"},
		{"Given up later.", CrashError{Name: "x", Restarts: 5, GaveUp: true, Tail: tail}, "x ended (exit code 0, given up after 5 restarts); its last words:\n  one\n  two"},
		{"Nothing is announced where nothing was said.", CrashError{Name: "x", GaveUp: true}, "x ended (exit code 0)"},
	} {
		if got := tc.crash.Error(); got != tc.want {
			t.Errorf("%s want %q, got %q", tc.reason, tc.want, got)
		}
	}
}

func TestKeptStopIsNoCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := newGroup(t)
	kept, err := g.Keep(shell(dir, "kept", "exec sleep 300"), DefaultRestart, func(e *CrashError) { t.Errorf("reported as a crash: %v", e) })
	if err != nil {
		t.Fatal(err)
	}
	kept.Stop(context.Background())
	if !gone(kept.Process().PID()) {
		t.Error("the process still runs")
	}
}

func TestEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("TENURE_TEST_SECRET", "visible")
	dir := t.TempDir()
	g := newGroup(t)
	p, err := g.Start(shell(dir, "env", "env"))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if out := strings.Join(Tail(p.Log(), 100), "\n"); strings.Contains(out, "TENURE_TEST_SECRET") {
		t.Errorf("the child inherited the environment:\n%s", out)
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	for _, tc := range []struct {
		reason string
		spec   Spec
	}{
		{"a program that does not exist", Spec{Name: "x", Path: "/does/not/exist", Log: filepath.Join(t.TempDir(), "log")}},
		{"a log that cannot be written", Spec{Name: "x", Path: "/bin/sh", Log: "/does/not/exist/log"}},
	} {
		if _, err := g.Start(tc.spec); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "cannot start x") {
			t.Errorf("%s: got %v", tc.reason, err)
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	var lines []string
	for i := range 5000 {
		lines = append(lines, fmt.Sprintf("line %d of a log that is longer than the window", i))
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := Tail(file, 3)
	if want := lines[len(lines)-3:]; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Tail(filepath.Join(t.TempDir(), "absent"), 3); got != nil {
		t.Errorf("a file that is absent: got %q", got)
	}
}

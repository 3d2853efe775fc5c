package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/ui"
)

// TestMain runs the test program as either half of --detach: as the foreground if
// TENURE_TEST_FOREGROUND is set, and as the background if detach started it.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(attachEnv) != "":
		os.Exit(testBackground())
	case os.Getenv("TENURE_TEST_FOREGROUND") != "":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err := detach(ctx, ui.Std())
		if err != nil && !errors.Is(err, ui.ErrReported) {
			ui.PrintError(ui.Std().Stderr(), err)
		}
		os.Exit(ui.ExitCode(err))
	}
	os.Exit(m.Run())
}

// testBackground acts as its first argument says. It writes its PID into the file that the
// second argument names.
func testBackground() int {
	a := attachment()
	if err := os.WriteFile(os.Args[2], []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return 99
	}
	fmt.Println("started")
	switch os.Args[1] {
	case "ends":
		fmt.Fprintln(os.Stderr, "said why")
		return 7
	case "killed":
		// A child that outlives this process must not hold the pipe.
		child := exec.Command("sleep", "60")
		if err := child.Start(); err != nil {
			return 99
		}
		_ = os.WriteFile(os.Args[2], []byte(strconv.Itoa(child.Process.Pid)), 0o600)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "interrupted":
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM)
		fmt.Println("waiting")
		<-ended
		return ui.ExitInterrupted
	}
	if err := a.release(os.Args[1] == "ready"); err != nil {
		return 99
	}
	fmt.Println("said after the release")
	time.AfterFunc(time.Minute, func() { os.Exit(0) })
	select {}
}

func foreground(t *testing.T, how string) (cmd *exec.Cmd, pidFile string) {
	t.Helper()
	pidFile = filepath.Join(t.TempDir(), "pid")
	cmd = exec.CommandContext(t.Context(), os.Args[0], how, pidFile)
	cmd.Env = append(os.Environ(), "TENURE_TEST_FOREGROUND=1")
	t.Cleanup(func() {
		if content, err := os.ReadFile(pidFile); err == nil {
			if pid, err := strconv.Atoi(string(content)); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return cmd, pidFile
}

func TestDetach(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, how string
		code        int
		output      string
		lives       bool
	}{
		"Ready":    {"A settled fleet gives the shell back.", "ready", 0, "started\n", true},
		"NotReady": {"Not everything is ready: the code says so, the cluster stays.", "not-ready", 1, "started\n", true},
		"Ends":     {"A start that fails has its own code and has said why.", "ends", 7, "started\nsaid why\n", false},
		"Killed":   {"Nobody else can say that it was killed.", "killed", 1, "started\n✗ cannot detach: the cluster's process ended before its fleet had settled: signal: killed\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, pidFile := foreground(t, tc.how)
			// CombinedOutput reads to the end, like $(…): it returns only when no process holds
			// the output open.
			cmd.WaitDelay = 30 * time.Second
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tc.code || errors.Is(err, exec.ErrWaitDelay) {
				t.Errorf("%s: exit code %d (%v), want %d", tc.reason, code, err, tc.code)
			}
			if string(out) != tc.output {
				t.Errorf("%s: output %q, want %q", tc.reason, out, tc.output)
			}
			content, err := os.ReadFile(pidFile)
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(string(content))
			if err != nil {
				t.Fatal(err)
			}
			if lives := syscall.Kill(pid, 0) == nil; lives != tc.lives {
				t.Errorf("%s: the background lives: %v, want %v", tc.reason, lives, tc.lives)
			}
		})
	}
}

func TestDetachInterrupted(t *testing.T) {
	t.Parallel()
	cmd, _ := foreground(t, "interrupted")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for buf := make([]byte, 100); !strings.Contains(said.String(), "waiting"); {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("the background said %q and no more: %v", said.String(), err)
		}
		said.Write(buf[:n])
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != ui.ExitInterrupted {
		t.Errorf("exit code %d, want %d: an interrupt ends the background, whose code counts", code, ui.ExitInterrupted)
	}
}

func TestReleaseOfTheForeground(t *testing.T) {
	t.Parallel()
	if err := attachment().release(true); err != nil {
		t.Errorf("a command without --detach has nothing to let go of: %v", err)
	}
}

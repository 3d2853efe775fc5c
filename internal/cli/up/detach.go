package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tenure-dev/tenure/internal/ui"
	"golang.org/x/sys/unix"
)

// attachEnv marks a process as the background half of --detach. Its file descriptor attachFD
// is a pipe to the process that the user started.
const attachEnv = "TENURE_ATTACHED"

// attachFD is the first of exec.Cmd's ExtraFiles.
const attachFD = 3

// detach starts this program again in a new session with the same terminal. It returns when
// the background process reports that its fleet has settled, or exits. Until then, the end of
// the context terminates the background process.
func detach(ctx context.Context, streams ui.IO) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot detach: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot detach: %w", err)
	}
	defer r.Close()
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = streams.Out, streams.Err
	cmd.Env = append(os.Environ(), attachEnv+"=1")
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot detach: %w", errors.Join(err, w.Close()))
	}
	_ = w.Close()
	// Stop the cluster's process with the context only until this function returns: the context
	// also ends after a successful start, and the cluster must continue to run then.
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	return awaitSettled(r, cmd)
}

// awaitSettled reads the result from the background half. If the background half exits first,
// awaitSettled returns its exit as an error: the background half has already printed the
// reason, unless it was killed.
func awaitSettled(r io.Reader, cmd *exec.Cmd) error {
	said := make([]byte, 1)
	if n, _ := r.Read(said); n == 1 {
		if said[0] == settledReady {
			return nil
		}
		return ui.ErrReported
	}
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		return ui.WithExitCode(ui.ErrReported, code)
	}
	if err == nil {
		err = errors.New("it ended by itself")
	}
	return fmt.Errorf("cannot detach: the cluster's process ended before its fleet had settled: %w", err)
}

const (
	settledReady    = '+'
	settledNotReady = '-'
)

// attached is the background half's connection to the foreground.
type attached struct{ pipe *os.File }

// attachment returns the connection of the background half to the foreground. It must be
// called once, before the process opens files or starts processes.
func attachment() attached {
	if os.Getenv(attachEnv) == "" {
		return attached{}
	}
	_ = os.Unsetenv(attachEnv)
	// Otherwise child processes would inherit the pipe and keep the foreground waiting after this
	// process is killed.
	syscall.CloseOnExec(attachFD)
	return attached{pipe: os.NewFile(attachFD, "attachment")}
}

// is reports whether this process is the background half.
func (a attached) is() bool { return a.pipe != nil }

// release reports to the foreground that the fleet has settled, and detaches from the
// terminal. In any other process it does nothing.
func (a attached) release(ready bool) error {
	if !a.is() {
		return nil
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot detach: %w", err)
	}
	defer null.Close()
	verdict := byte(settledNotReady)
	if ready {
		verdict = settledReady
	}
	// Release the streams first: a program that reads them to the end must not wait for this
	// process.
	for _, stream := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if err := unix.Dup2(int(null.Fd()), int(stream.Fd())); err != nil {
			return fmt.Errorf("cannot detach: %w", err)
		}
	}
	if _, err := a.pipe.Write([]byte{verdict}); err != nil {
		return fmt.Errorf("cannot detach: %w", err)
	}
	return a.pipe.Close()
}

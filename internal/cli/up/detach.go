package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tenure-dev/tenure/internal/cli/ui"
	"golang.org/x/sys/unix"
)

// attachEnv tells a process that it is the background half of --detach: its
// file descriptor 3 leads to the process that the user started.
const attachEnv = "TENURE_ATTACHED"

// detach starts this program anew in a session of its own, with the same
// terminal, and returns when that one says that its fleet has settled, or ends.
// Until then an interrupt here ends it.
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
	cmd := exec.Command(self, withoutDetach(os.Args[1:])...)
	cmd.Stdout, cmd.Stderr = streams.Out, streams.Err
	cmd.Env = append(os.Environ(), attachEnv+"=1")
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot detach: %w", errors.Join(err, w.Close()))
	}
	_ = w.Close()
	// Only until this function returns: the context also ends when all went
	// well, and the cluster has to outlive that.
	keep := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer keep()
	verdict := make([]byte, 1)
	if n, _ := r.Read(verdict); n == 1 {
		if verdict[0] == settledReady {
			return nil
		}
		return ui.ErrReported
	}
	// It ended before the fleet had settled, and has said why.
	_ = cmd.Wait()
	return ui.ErrReported
}

// withoutDetach removes --detach from arguments.
func withoutDetach(args []string) []string {
	var kept []string
	for _, arg := range args {
		if arg == "--" {
			break
		}
		if arg != "--detach" && arg != "--detach=true" {
			kept = append(kept, arg)
		}
	}
	return kept
}

const (
	settledReady    = '+'
	settledNotReady = '-'
)

// attached is the background half's way to let go of the foreground.
type attached struct{ pipe *os.File }

func attachment() attached {
	if os.Getenv(attachEnv) == "" {
		return attached{}
	}
	_ = os.Unsetenv(attachEnv)
	return attached{pipe: os.NewFile(3, "attachment")}
}

// release tells the foreground that the fleet has settled and lets go of the
// terminal. In a process that is not the background half it does nothing.
func (a attached) release(ready bool) error {
	if a.pipe == nil {
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
	// The streams are let go of first: whoever reads them to the end must
	// not wait for this process.
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

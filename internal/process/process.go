package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Spec describes a child process.
type Spec struct {
	// Name is the name of the process in messages.
	Name string
	// Path is the program; Args its arguments without the program's name.
	Path string
	Args []string
	// Env is the complete environment: the process inherits nothing.
	Env []string
	// Dir is the working directory; empty means the parent's.
	Dir string
	// Log is the file to which standard output and error are appended. If it does not exist, it is
	// created with read and write permission for its owner only.
	Log string
	// StopTimeout is the time between SIGTERM and SIGKILL; zero means [DefaultStopTimeout].
	StopTimeout time.Duration
}

// DefaultStopTimeout is the time between SIGTERM and SIGKILL unless a Spec sets another.
const DefaultStopTimeout = 10 * time.Second

// Process is a started child.
type Process struct {
	spec Spec
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func start(spec Spec, pgid int) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: cannot open its log: %w", spec.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env = append([]string{}, spec.Env...)
	cmd.Dir = spec.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: pgid}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", spec.Name, err)
	}
	p := &Process{spec: spec, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns nil for exit code 0, and otherwise an *exec.ExitError. It must be called after
// Done is closed.
func (p *Process) Err() error { return p.err }

// ExitCode returns the exit code of a process that has ended, or, as in shells, 128 plus the
// number of the signal that killed it.
func (p *Process) ExitCode() int {
	state := p.cmd.ProcessState
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// Stop sends SIGTERM, waits for the end, and sends SIGKILL when the deadline
// of the Spec or the context passes. It returns when the process is gone.
func (p *Process) Stop(ctx context.Context) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timeout := p.spec.StopTimeout
	if timeout == 0 {
		timeout = DefaultStopTimeout
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Log returns the name of the file with the output of the process.
func (p *Process) Log() string { return p.spec.Log }

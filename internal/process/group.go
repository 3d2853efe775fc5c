// Package process runs child processes that never outlive their parent, however the parent
// ends.
//
// All children of a [Group] join the process group of its reaper, a small process that holds
// the read end of a pipe. When the parent dies, even by SIGKILL, the pipe closes, and the
// reaper kills the group and removes the configured folders. A child joins the group before it
// runs its program, so the reaper misses none.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Options configure a group.
type Options struct {
	// Reaper is the command line that ends in a call of [RunReaper]. The
	// folders of Remove are appended to it as arguments.
	Reaper []string
	// Remove are folders that the reaper deletes when the parent dies without closing the group.
	// The reaper also deletes their parent folders if these are empty then.
	Remove []string
	// Hold are open files, such as locks, that stay open in the reaper until the children have
	// ended and the folders are removed. A process that gets such a lock knows that the group has
	// left nothing behind.
	Hold []*os.File
}

// Group is a set of child processes that end with their parent.
type Group struct {
	reaper *exec.Cmd
	pipe   io.WriteCloser

	mu     sync.Mutex
	procs  []*Process
	closed bool
}

// errClosed is returned by Start after Close.
var errClosed = errors.New("the group of processes is closed")

// NewGroup starts the reaper. Close the group to stop it and all children. It returns an error
// if opts.Reaper is empty or cannot be started.
func NewGroup(opts Options) (*Group, error) {
	if len(opts.Reaper) == 0 {
		return nil, errors.New("cannot start the reaper: no command given")
	}
	cmd := exec.Command(opts.Reaper[0], append(opts.Reaper[1:len(opts.Reaper):len(opts.Reaper)], opts.Remove...)...)
	cmd.Env = []string{"HOME=/", "PATH=/usr/bin:/bin"}
	cmd.ExtraFiles = opts.Hold
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start the reaper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the reaper: %w", err)
	}
	return &Group{reaper: cmd, pipe: pipe}, nil
}

// Start starts a process as a member of the group. It returns as soon as the process runs;
// readiness is the caller's to find out. It returns an error if the group is closed, or if the
// log cannot be opened or the program cannot be started.
func (g *Group) Start(spec Spec) (*Process, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fmt.Errorf("cannot start %s: %w", spec.Name, errClosed)
	}
	p, err := start(spec, g.reaper.Process.Pid)
	if err != nil {
		return nil, err
	}
	// A failed write means that the reaper is gone; Close reports that.
	_, _ = fmt.Fprintf(g.pipe, "+%d\n", p.PID())
	g.procs = append(g.procs, p)
	go func() {
		<-p.Done()
		g.forget(p)
	}()
	return p, nil
}

func (g *Group) forget(p *Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	_, _ = fmt.Fprintf(g.pipe, "-%d\n", p.PID())
	for i, q := range g.procs {
		if q == p {
			g.procs = append(g.procs[:i], g.procs[i+1:]...)
			return
		}
	}
}

// Closed reports whether Close has been called. A child that ends after that was stopped and
// did not crash.
func (g *Group) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Close stops the running children, all at once, and then the reaper. It kills all other
// processes in the group. Each child has its own stop timeout; a context that ends early kills
// all children at once. Children that must stop in an order have to be stopped before Close. It
// returns an error if the reaper had to be killed or reported a failure. A second call returns
// nil.
func (g *Group) Close(ctx context.Context) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	procs := g.procs
	g.mu.Unlock()

	var stopped sync.WaitGroup
	for _, p := range procs {
		stopped.Go(func() { p.Stop(ctx) })
	}
	stopped.Wait()
	// The message tells the reaper that the end is orderly: the reaper removes no folders and
	// exits.
	_, werr := io.WriteString(g.pipe, orderly+"\n")
	_ = g.pipe.Close()
	done := make(chan error, 1)
	go func() { done <- g.reaper.Wait() }()
	select {
	case err := <-done:
		// A process group ID is only reused when the group is empty, so this kills only processes
		// of this group.
		_ = syscall.Kill(-g.reaper.Process.Pid, syscall.SIGKILL)
		return errors.Join(werr, err)
	case <-time.After(reaperPatience):
		_ = syscall.Kill(-g.reaper.Process.Pid, syscall.SIGKILL)
		return errors.New("the reaper did not end by itself and was killed")
	}
}

// reaperPatience is the timeout for an orderly end of the reaper.
const reaperPatience = 5 * time.Second

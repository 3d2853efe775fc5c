package process

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Restart bounds how a crashing process is restarted.
type Restart struct {
	// First is the pause before the first restart; it doubles each time.
	First time.Duration
	// Max is the maximum number of consecutive restarts.
	Max int
	// Healthy is the running time after which a process counts as sound
	// again: its next crash is the first one.
	Healthy time.Duration
}

// DefaultRestart gives up after five restarts within about half a minute.
var DefaultRestart = Restart{First: time.Second, Max: 5, Healthy: time.Minute}

// CrashError reports that a process ended without being stopped.
type CrashError struct {
	// Name is the process, Err how it ended, Restarts how often it had been
	// restarted in a row before.
	Name     string
	Err      error
	Restarts int
	// GaveUp reports that the process is not restarted any more.
	GaveUp bool
	// Tail is the end of its log.
	Tail []string
}

func (e *CrashError) Error() string {
	how := "exit code 0"
	if e.Err != nil {
		how = e.Err.Error()
	}
	if !e.GaveUp {
		return fmt.Sprintf("%s ended (%s) and is restarted", e.Name, how)
	}
	if e.Restarts > 0 {
		how += fmt.Sprintf(", given up after %d restarts", e.Restarts)
	}
	if len(e.Tail) == 0 {
		return fmt.Sprintf("%s ended (%s)", e.Name, how)
	}
	return fmt.Sprintf("%s ended (%s); its last words:\n  %s", e.Name, how, strings.Join(e.Tail, "\n  "))
}

// Unwrap returns the error with which the process ended.
func (e *CrashError) Unwrap() error { return e.Err }

// Kept is a process that is restarted after a crash.
type Kept struct {
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	proc   *Process
}

// Keep starts a process and restarts it after each crash, with a growing backoff. It reports
// each crash to onCrash; after the last one, which has GaveUp set, it does not restart the
// process. Keep returns the error of the first start.
func (g *Group) Keep(spec Spec, restart Restart, onCrash func(*CrashError)) (*Kept, error) {
	p, err := g.Start(spec)
	if err != nil {
		return nil, err
	}
	return g.KeepStarted(p, spec, restart, onCrash), nil
}

// KeepStarted is like Keep for a process that is already running.
func (g *Group) KeepStarted(p *Process, spec Spec, restart Restart, onCrash func(*CrashError)) *Kept {
	ctx, cancel := context.WithCancel(context.Background())
	k := &Kept{cancel: cancel, done: make(chan struct{}), proc: p}
	go func() {
		defer close(k.done)
		k.watch(ctx, g, spec, restart, onCrash)
	}()
	return k
}

func (k *Kept) watch(ctx context.Context, g *Group, spec Spec, restart Restart, onCrash func(*CrashError)) {
	restarts, pause, started := 0, restart.First, time.Now()
	for {
		p := k.Process()
		select {
		case <-ctx.Done():
			return
		case <-p.Done():
		}
		if ctx.Err() != nil || g.Closed() {
			return
		}
		if time.Since(started) >= restart.Healthy {
			restarts, pause = 0, restart.First
		}
		crash := &CrashError{Name: spec.Name, Err: p.Err(), Restarts: restarts, Tail: CrashLogTail(spec.Log)}
		for {
			crash.GaveUp = restarts >= restart.Max
			onCrash(crash)
			if crash.GaveUp {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			restarts, pause, started = restarts+1, pause*2, time.Now()
			next, err := g.Start(spec)
			if err == nil {
				k.mu.Lock()
				k.proc = next
				k.mu.Unlock()
				break
			}
			if ctx.Err() != nil || g.Closed() {
				return
			}
			crash = &CrashError{Name: spec.Name, Err: err, Restarts: restarts}
		}
	}
}

// Process returns the current process, or the last one.
func (k *Kept) Process() *Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.proc
}

// Stop ends the process for good.
func (k *Kept) Stop(ctx context.Context) {
	k.cancel()
	<-k.done
	k.Process().Stop(ctx)
}

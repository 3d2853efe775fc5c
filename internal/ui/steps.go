package ui

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// spinInterval is the interval at which running steps are drawn.
const spinInterval = 100 * time.Millisecond

var spinner = [...]string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// Steps prints the steps of a start: `✓ etcd 0.5s`. On a terminal the running steps are shown
// with a spinner; in a pipe each step is printed as a line when it ends. Steps may run
// concurrently. It is safe for concurrent use.
type Steps struct {
	// now is the clock.
	now func() time.Time

	mu      sync.Mutex
	screen  *Screen
	canvas  canvas
	running []*Step
	frame   int
	stop    chan struct{}
	idle    sync.WaitGroup
}

// Step is one of [Steps].
type Step struct {
	steps   *Steps
	name    string
	detail  string
	started time.Time
	ended   bool
}

// NewSteps starts a list of steps. It must be closed.
func NewSteps(screen *Screen) *Steps { return newSteps(screen, time.Now) }

func newSteps(screen *Screen, now func() time.Time) *Steps {
	s := &Steps{now: now, screen: screen, canvas: canvas{screen: screen}, stop: make(chan struct{})}
	if screen.Interactive {
		s.idle.Go(s.spin)
	}
	return s
}

// Start begins a step. The caller must call Done or Fail once.
func (s *Steps) Start(name string) *Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := &Step{steps: s, name: Clean(name), started: s.now()}
	s.running = append(s.running, step)
	s.draw()
	return step
}

// Update sets the progress of a step, such as "12 packages left". Terminals show it until the
// step ends.
func (t *Step) Update(detail string) {
	t.steps.mu.Lock()
	defer t.steps.mu.Unlock()
	t.detail = Clean(detail)
}

// Done ends a step well.
func (t *Step) Done() { t.steps.end(t, nil) }

// Fail ends a step with the reason for its failure. It prints the error in one line;
// [PrintError] keeps the line breaks and prints hints.
func (t *Step) Fail(err error) { t.steps.end(t, err) }

// Close ends the list. Steps that still run, because the start was given up,
// are no longer shown.
func (s *Steps) Close() {
	close(s.stop)
	s.idle.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = nil
	s.draw()
}

func (s *Steps) spin() {
	ticker := time.NewTicker(spinInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		s.frame++
		s.draw()
		s.mu.Unlock()
	}
}

// end prints the result. It ignores errors of the screen: a start continues without output.
func (s *Steps) end(t *Step, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	s.running = slices.DeleteFunc(s.running, func(other *Step) bool { return other == t })
	line := fmt.Sprintf("%s %s %s", s.screen.Paint(Green, "✓"), t.name, s.screen.Paint(Faint, s.elapsed(t)))
	if err != nil {
		line = fmt.Sprintf("%s %s: %s", s.screen.Paint(Red, "✗"), t.name, Clean(err.Error()))
	}
	if !s.screen.Interactive {
		_, _ = io.WriteString(s.screen, line+"\n")
		return
	}
	_ = s.canvas.replace([]string{line}, s.lines())
}

func (s *Steps) draw() {
	if s.screen.Interactive && (len(s.running) > 0 || len(s.canvas.drawn) > 0) {
		_ = s.canvas.draw(s.lines())
	}
}

func (s *Steps) lines() []string {
	var lines []string
	for _, t := range s.running {
		line := fmt.Sprintf("%s %s %s", s.screen.Paint(Yellow, spinner[s.frame%len(spinner)]), t.name, s.screen.Paint(Faint, s.elapsed(t)))
		if t.detail != "" {
			line += " " + s.screen.Paint(Faint, t.detail)
		}
		lines = append(lines, line)
	}
	return lines[:min(len(lines), s.canvas.height())]
}

func (s *Steps) elapsed(t *Step) string {
	return fmt.Sprintf("%.1fs", s.now().Sub(t.started).Seconds())
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/internal/ui"
)

// report is the interval between progress lines without a terminal, so that a reader of the
// log sees that the build is running.
const report = 10 * time.Second

// errNotBuilt is the error in the step of a failed build; the full error is printed below the
// step.
var errNotBuilt = errors.New("not built")

// progress shows the progress of the build of one program, in the style of `tenure up`.
type progress struct {
	out  io.Writer
	name string
	now  func() time.Time

	steps *ui.Steps
	step  *ui.Step

	mu         sync.Mutex
	began      time.Time
	total      int // packages to compile, -1 before that is known
	done       int
	downloaded int

	stop chan struct{}
	idle sync.WaitGroup
}

// newProgress returns a progress that draws on a terminal, and reports in lines
// otherwise.
func newProgress(out *os.File, name string) *progress {
	return &progress{out: out, name: name, now: time.Now, total: -1, stop: make(chan struct{})}
}

// start begins to show. finish must follow.
func (p *progress) start() {
	p.began = p.now()
	screen := ui.NewScreen(p.out)
	p.steps = ui.NewSteps(screen)
	p.step = p.steps.Start(p.name)
	p.step.Update(p.state())
	if screen.Interactive {
		return
	}
	p.idle.Go(func() {
		tick := time.NewTicker(report)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				_, _ = io.WriteString(p.out, p.report())
			}
		}
	})
}

// compile sets the number of packages left to compile.
func (p *progress) compile(packages int) {
	p.mu.Lock()
	p.total, p.done = packages, 0
	p.mu.Unlock()
	p.step.Update(p.state())
}

// line handles a line of the go command and reports whether it was about progress: the import
// path of a package that is being compiled (go build -v), or a module that is being
// downloaded.
func (p *progress) line(text string) bool {
	if !p.count(text) {
		return false
	}
	p.step.Update(p.state())
	return true
}

func (p *progress) count(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasPrefix(text, "go: downloading ") {
		p.downloaded++
		return true
	}
	if text == "" || strings.ContainsAny(text, " \t:#") {
		return false
	}
	// The go command may compile packages that were not counted, if the cache is cleaned
	// meanwhile: the number never falls below zero.
	if p.done < p.total {
		p.done++
	}
	return true
}

// state returns the progress of the build as text.
func (p *progress) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.total < 0 && p.downloaded > 0:
		return fmt.Sprintf("modules downloaded: %d", p.downloaded)
	case p.total < 0:
		return "looking for what is to be built"
	case p.done < p.total:
		return fmt.Sprintf("%d of %d packages left", p.total-p.done, p.total)
	}
	// The go command announces a package when it begins with it.
	return "the last packages, and linking"
}

// report returns the progress line for output without a terminal.
func (p *progress) report() string {
	return fmt.Sprintf("  %s %.0fs %s\n", p.name, p.now().Sub(p.began).Seconds(), p.state())
}

// finish ends the show with a line that stays.
func (p *progress) finish(err error) {
	close(p.stop)
	p.idle.Wait()
	if err != nil {
		p.step.Fail(errNotBuilt)
	} else {
		p.step.Done()
	}
	p.steps.Close()
}

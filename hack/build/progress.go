package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// redraw is how often the line on a terminal is drawn anew.
	redraw = 200 * time.Millisecond
	// report is how often a line is written where there is no terminal, so
	// that whoever watches a log knows that the build is alive.
	report = 10 * time.Second
)

// progress shows how the build of one program goes.
type progress struct {
	out      io.Writer
	name     string
	terminal bool
	every    time.Duration
	now      func() time.Time

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
	p := &progress{out: out, name: name, every: report, now: time.Now, total: -1, stop: make(chan struct{})}
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" {
		p.terminal, p.every = true, redraw
	}
	return p
}

// start begins to show. finish must follow.
func (p *progress) start() {
	p.began = p.now()
	p.idle.Go(func() {
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.show(p.state())
			}
		}
	})
}

// compile says how many packages are left to compile.
func (p *progress) compile(packages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total, p.done = packages, 0
}

// line takes a line that the go command wrote and says whether it was about
// progress: the import path of a package that is being compiled (go build -v),
// or a module that is being downloaded.
func (p *progress) line(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasPrefix(text, "go: downloading ") {
		p.downloaded++
		return true
	}
	if text == "" || strings.ContainsAny(text, " \t:#") {
		return false
	}
	// A package can be compiled that was not counted, when somebody cleans the
	// cache meanwhile: the rest never falls below zero.
	if p.done < p.total {
		p.done++
	}
	return true
}

// state is the line to show.
func (p *progress) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seconds := int(p.now().Sub(p.began).Seconds())
	switch {
	case p.total < 0 && p.downloaded > 0:
		return fmt.Sprintf("%s: %d modules downloaded (%d s)", p.name, p.downloaded, seconds)
	case p.total < 0:
		return fmt.Sprintf("%s: looking for what is to be built (%d s)", p.name, seconds)
	case p.done < p.total:
		return fmt.Sprintf("%s: %d of %d packages left (%d s)", p.name, p.total-p.done, p.total, seconds)
	}
	// The go command announces a package when it begins with it.
	return fmt.Sprintf("%s: the last packages, and linking (%d s)", p.name, seconds)
}

// finish ends the show with a line that stays.
func (p *progress) finish(err error) {
	close(p.stop)
	p.idle.Wait()
	took := p.now().Sub(p.began).Round(100 * time.Millisecond)
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	text := fmt.Sprintf("%s %s (%s)", mark, p.name, took)
	if p.terminal {
		text = "\r\x1b[K" + text
	}
	_, _ = fmt.Fprintln(p.out, text)
}

func (p *progress) show(text string) {
	if p.terminal {
		// Cut before the edge: a line that wraps cannot be taken back.
		text = "\r\x1b[K  " + text[:min(len(text), 76)]
	} else {
		text = "  " + text + "\n"
	}
	_, _ = io.WriteString(p.out, text)
}

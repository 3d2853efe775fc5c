package node

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// quickCrash is the running time below which a crash counts as a failed start.
const quickCrash = 30 * time.Second

// refusals is the number of failed attempts after which a container that cannot be started is
// reported. The object that it lacks may be on its way.
const refusals = 5

// Crash reports that a program ended with an error, or cannot be started.
type Crash struct {
	// Program is the name of the program, and Pod the NAMESPACE/NAME of its Pod.
	Program, Pod string
	// ExitCode is the program's, or 0 if it was not started.
	ExitCode int32
	// Starts is the number of starts in a row that failed at once.
	Starts int
	// Output are the last lines of the program, or the reason why it was not started.
	Output string
}

// Error returns a text with the last lines of the program.
func (c *Crash) Error() string {
	if c.ExitCode == 0 {
		return fmt.Sprintf("%s (Pod %s) cannot start: %s", c.Program, c.Pod, c.Output)
	}
	text := fmt.Sprintf("%s (Pod %s) ended with exit code %d", c.Program, c.Pod, c.ExitCode)
	if c.Starts > 1 {
		text = fmt.Sprintf("%s (Pod %s) does not start: it ended with exit code %d, %d times", c.Program, c.Pod, c.ExitCode, c.Starts)
	}
	if c.Output == "" {
		return text
	}
	return text + ":\n  " + strings.ReplaceAll(strings.TrimSpace(c.Output), "\n", "\n  ")
}

// crashed reports the end of the process. A program that was stopped by a signal has not crashed.
func (r *runner) crashed(end *corev1.ContainerStateTerminated, ran time.Duration) {
	if end.ExitCode == 0 || end.ExitCode > 128 {
		r.quick = 0
		return
	}
	r.quick++
	if ran >= quickCrash {
		r.quick = 1
	}
	r.report(&Crash{ExitCode: end.ExitCode, Starts: r.quick, Output: end.Message})
}

// refused reports a container that cannot be started for some time.
func (r *runner) refused(err error) {
	if r.refusals++; r.refusals == refusals {
		r.report(&Crash{Output: err.Error()})
	}
}

func (r *runner) report(c *Crash) {
	if r.p.n.cfg.OnCrash == nil {
		return
	}
	c.Program, c.Pod = r.program.Name, r.p.namespace+"/"+r.p.name
	r.p.n.cfg.OnCrash(c)
}

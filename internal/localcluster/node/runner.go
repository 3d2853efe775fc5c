package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/internal/process"
)

// These are the pauses between restarts of a crashing process. A kubelet's default
// pauses are longer; here a user is watching.
const (
	firstPause = time.Second
	maxPause   = time.Minute
	// healthyAfter is the running time after which the pauses start again at
	// firstPause.
	healthyAfter = 2 * time.Minute
	// configPause is the pause before another attempt to start a container that an
	// error in its Pod or a missing object prevents.
	configPause = 2 * time.Second
)

// ProcessScheme begins the container ID of a container that is a host process. That of a
// simulated one has another scheme.
const ProcessScheme = "process://"

// maxMessage limits the termination message, in bytes. Kubernetes limits messages
// from logs to the same size.
const maxMessage = 2048

// runner runs and restarts the process of one container.
type runner struct {
	p         *podState
	program   Program
	container corev1.Container
	done      chan struct{}
	// tmp is the folder for temporary files of a program with gpg.
	tmp string
	// quick is the number of starts in a row that failed at once, refusals the number of attempts
	// in a row to start a container that cannot be started.
	quick, refusals int
	// releases end the reservations of the current process's ports.
	releases []func()

	// The Pod's lock guards these fields.
	ports    map[int]int
	current  *attempt
	previous *attempt
}

// attempt is one run of the process.
type attempt struct {
	log   string
	ended chan struct{}
}

func newRunner(p *podState, program Program, c *corev1.Container) *runner {
	return &runner{p: p, program: program, container: *c.DeepCopy(), done: make(chan struct{})}
}

// run runs the process until the context ends or the Pod's restart policy allows no
// restart.
func (r *runner) run(ctx context.Context) {
	defer r.releasePorts()
	pause := firstPause
	for ctx.Err() == nil {
		spec, err := r.prepare(ctx)
		if err != nil {
			r.refuse(ctx, err)
			continue
		}
		r.refusals = 0
		began := time.Now()
		end, err := r.once(ctx, spec)
		if err != nil {
			end = &corev1.ContainerStateTerminated{
				ExitCode: 128, Reason: "StartError", Message: err.Error(),
				StartedAt: metav1.NewTime(began), FinishedAt: metav1.Now(),
			}
		}
		r.p.set(r.container.Name, func(s *containerState) {
			s.state = corev1.ContainerState{Terminated: end}
			s.ready, s.started = false, false
		})
		if ctx.Err() != nil || !restarts(r.p.snapshot(), end.ExitCode != 0) {
			return
		}
		r.crashed(end, time.Since(began))
		if time.Since(began) >= healthyAfter {
			pause = firstPause
		}
		r.backOff(ctx, end, pause)
		pause = min(2*pause, maxPause)
	}
}

// refuse reports why the container cannot start, and pauses: a missing object may be
// created.
func (r *runner) refuse(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	said := false
	r.p.set(r.container.Name, func(s *containerState) {
		said = s.state.Waiting != nil && s.state.Waiting.Message == err.Error()
		s.state = waiting("CreateContainerConfigError", err.Error())
		s.ready, s.started = false, false
	})
	if !said {
		r.p.n.log.Warn("cannot start a process", r.attrs("error", err)...)
		r.p.event(corev1.EventTypeWarning, "Failed", "Error: %v", err)
	}
	r.refused(err)
	process.Pause(ctx, configPause)
}

func (r *runner) backOff(ctx context.Context, end *corev1.ContainerStateTerminated, pause time.Duration) {
	message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
		pause, r.container.Name, r.p.name, r.p.namespace, r.p.uid)
	r.p.set(r.container.Name, func(s *containerState) {
		s.last = corev1.ContainerState{Terminated: end}
		s.state = waiting("CrashLoopBackOff", message)
	})
	r.p.n.log.Warn("a process ended and is restarted", r.attrs("exitCode", end.ExitCode, "pause", pause, "message", end.Message)...)
	r.p.event(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s", r.container.Name)
	process.Pause(ctx, pause)
	if ctx.Err() == nil {
		r.p.mu.Lock()
		r.p.states[r.container.Name].restarts++
		r.p.mu.Unlock()
	}
}

// prepare returns the spec of the container's process. Errors come from the Pod or
// from missing objects.
func (r *runner) prepare(ctx context.Context) (*process.Spec, error) {
	p := r.p
	if !p.n.cfg.Platform(p.namespace) {
		return nil, fmt.Errorf("namespace %s is not one of the platform any more", p.namespace)
	}
	vars, err := resolveEnv(ctx, p.n.cfg.Client.CoreV1(), p.snapshot(), &r.container, capacity())
	if err != nil {
		return nil, err
	}
	args := make([]string, len(r.container.Args))
	for i, a := range r.container.Args {
		args[i] = expand(a, vars)
	}
	base := filepath.Join(p.dir, "containers", r.container.Name)
	root := filepath.Join(base, "root")
	r.releasePorts()
	inv, err := r.program.rewrite(args, root, r.reservePort)
	if err != nil {
		return nil, err
	}
	if err := makeDirs(base, inv.dirs); err != nil {
		return nil, err
	}
	kubeconfig, err := p.creds.ensure(ctx, &r.container)
	if err != nil {
		return nil, err
	}
	if r.program.Kubeconfig != "" {
		inv.args = append(inv.args, "--"+r.program.Kubeconfig+"="+kubeconfig)
	}
	if _, set := vars["RUNTIME_NAMESPACE"]; !set {
		vars["RUNTIME_NAMESPACE"] = p.namespace
	}
	fixed := map[string]string{}
	if r.program.Git {
		if err := gitPath(filepath.Join(base, "git")); err != nil {
			return nil, err
		}
		fixed = gitEnv(filepath.Join(base, "git"), vars)
	}
	fixed["HOME"], fixed["TMPDIR"], fixed["KUBECONFIG"] = filepath.Join(base, "home"), filepath.Join(base, "tmp"), kubeconfig
	if r.program.GPG {
		if fixed["TMPDIR"], err = r.tmpForSockets(); err != nil {
			return nil, err
		}
		if err := gpgPath(fixed["PATH"], fixed["TMPDIR"]); err != nil {
			return nil, err
		}
	}
	var outside []string
	if p.n.cfg.Env != nil {
		outside = p.n.cfg.Env(vars, p.ip.String())
	}
	env, dropped := processEnv(r.program, vars, outside, fixed)
	if left := append(inv.dropped, dropped...); len(left) > 0 {
		p.n.log.Info("left out what has no place on a host", r.attrs("names", strings.Join(left, ", "))...)
	}
	log, err := r.newAttempt()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	r.ports = inv.ports
	p.mu.Unlock()
	return &process.Spec{
		Name: p.namespace + "/" + p.name + "/" + r.container.Name,
		Path: r.program.Path, Args: inv.args, Env: env, Dir: filepath.Join(base, "home"), Log: log,
		// Deletion may shorten the Pod's grace period, so the context of Stop limits
		// the time instead.
		StopTimeout: 24 * time.Hour,
	}, nil
}

// reservePort reserves a port for the next process. The reservation lasts until that
// process has ended and its successor is prepared, because [Node.HostAddress]
// returns the port until then.
func (r *runner) reservePort() (int, error) {
	number, release, err := r.p.n.reserve()
	if err == nil {
		r.releases = append(r.releases, release)
	}
	return number, err
}

func (r *runner) releasePorts() {
	for _, release := range r.releases {
		release()
	}
	r.releases = nil
}

// tmpForSockets creates the folder for temporary files of a program that runs gpg.
// gpg's sockets need a shorter path than the path of a Pod's folder.
func (r *runner) tmpForSockets() (string, error) {
	if r.tmp == "" {
		r.tmp = filepath.Join(r.p.n.cfg.Short, strconv.FormatUint(r.p.n.shorts.Add(1), 36))
	}
	if err := os.MkdirAll(r.tmp, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the folder for temporary files: %w", err)
	}
	return r.tmp, nil
}

// makeDirs creates the folders of a container. It uses [os.Root], which does not
// follow symbolic links out of the root.
func makeDirs(base string, dirs []string) error {
	for _, sub := range []string{"root", "home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(base, sub), 0o700); err != nil {
			return fmt.Errorf("cannot make the folders of the container: %w", err)
		}
	}
	root, err := os.OpenRoot(filepath.Join(base, "root"))
	if err != nil {
		return fmt.Errorf("cannot open the folder of the container: %w", err)
	}
	defer root.Close()
	for _, dir := range dirs {
		if err := root.MkdirAll(cmp.Or(filepath.FromSlash(dir), "."), 0o700); err != nil {
			return fmt.Errorf("cannot make folder /%s of the container: %w", dir, err)
		}
	}
	return nil
}

// newAttempt returns the log file for the next run, and removes the log of the run
// before the previous one.
func (r *runner) newAttempt() (string, error) {
	dir := filepath.Join(r.p.dir, "logs", r.container.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the folder for logs: %w", err)
	}
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.previous != nil {
		_ = os.Remove(r.previous.log)
	}
	r.previous = r.current
	log := filepath.Join(dir, strconv.Itoa(int(r.p.states[r.container.Name].restarts))+".log")
	r.current = &attempt{log: log, ended: make(chan struct{})}
	return log, nil
}

// once starts the process and waits until it ends.
func (r *runner) once(ctx context.Context, spec *process.Spec) (*corev1.ContainerStateTerminated, error) {
	r.p.mu.Lock()
	current, ports := r.current, r.ports
	r.p.mu.Unlock()
	defer close(current.ended)
	proc, err := r.p.n.cfg.Processes.Start(*spec)
	if err != nil {
		return nil, err
	}
	started := metav1.Now()
	id := ProcessScheme + strconv.Itoa(proc.PID())
	r.p.n.log.Debug("started a process", r.attrs("pid", proc.PID(), "log", spec.Log)...)
	probes := newProbes(&r.container, ports)
	r.p.set(r.container.Name, func(s *containerState) {
		s.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
		s.id = id
		s.started = probes.startup == nil
		s.ready = probes.startup == nil && probes.readiness == nil
	})
	r.p.event(corev1.EventTypeNormal, "Started", "Started process for container %s", r.container.Name)

	probing, stopProbing := context.WithCancel(ctx)
	failed := make(chan error, 1)
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		failed <- r.probe(probing, probes)
	}()
	var killed error
	select {
	case <-proc.Done():
	case <-ctx.Done():
		r.stop(proc)
	case killed = <-failed:
		if killed != nil {
			r.p.event(corev1.EventTypeWarning, "Killing", "Container %s: %v", r.container.Name, killed)
			r.stop(proc)
		}
		select {
		case <-proc.Done():
		case <-ctx.Done():
			r.stop(proc)
		}
	}
	stopProbing()
	<-probed
	if r.tmp != "" {
		if err := endAgents(r.tmp); err != nil {
			r.p.n.log.Warn("cannot clean up after a process", r.attrs("error", err)...)
		}
	}
	return r.terminated(proc, id, started, killed), nil
}

// stop ends the process within the Pod's grace period, or earlier if the node stops.
func (r *runner) stop(proc *process.Process) {
	r.p.mu.Lock()
	grace := r.p.grace
	r.p.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.p.n.hardCtx, grace)
	defer cancel()
	proc.Stop(ctx)
}

// terminated returns the final state of a process. If the process failed, the state
// contains the end of its log.
func (r *runner) terminated(proc *process.Process, id string, started metav1.Time, killed error) *corev1.ContainerStateTerminated {
	code := int32(proc.ExitCode())
	end := &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: "Completed", ContainerID: id,
		StartedAt: started, FinishedAt: metav1.Now(),
	}
	if code != 0 || killed != nil {
		end.Reason = "Error"
		end.Message = lastLines(proc.Log())
	}
	if killed != nil {
		end.Message = killed.Error() + "\n" + end.Message
	}
	return end
}

func lastLines(log string) string {
	text := strings.Join(process.Tail(log, 80), "\n")
	return strings.ToValidUTF8(text[max(len(text)-maxMessage, 0):], "?")
}

func (r *runner) attrs(more ...any) []any {
	return append([]any{"namespace", r.p.namespace, "pod", r.p.name, "container", r.container.Name}, more...)
}

// errNotListening is the error of a probe for a port at which the process does not
// listen.
var errNotListening = errors.New("the process does not listen at this port")

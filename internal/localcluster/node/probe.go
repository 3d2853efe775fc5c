package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tenure-dev/tenure/internal/process"
)

// eager is the interval of a probe before its first success. A kubelet uses the
// period from the beginning; here the first success should show as soon as possible.
const eager = 100 * time.Millisecond

// probe is a check of a process with the thresholds of its Pod.
type probe struct {
	check                  func(context.Context) error
	delay, period, timeout time.Duration
	success, failure       int
}

// probes are the probes of one container; a missing probe is nil.
type probes struct{ startup, liveness, readiness *probe }

func newProbes(c *corev1.Container, ports map[int]int) probes {
	return probes{
		startup:   newProbe(c, c.StartupProbe, ports),
		liveness:  newProbe(c, c.LivenessProbe, ports),
		readiness: newProbe(c, c.ReadinessProbe, ports),
	}
}

// newProbe returns the probe for the process's ports. It returns nil, which counts
// as success, for probes that run a command or use gRPC.
func newProbe(c *corev1.Container, p *corev1.Probe, ports map[int]int) *probe {
	if p == nil {
		return nil
	}
	var check func(context.Context) error
	switch {
	case p.HTTPGet != nil:
		check = httpCheck(c, p.HTTPGet, ports)
	case p.TCPSocket != nil:
		check = tcpCheck(c, p.TCPSocket.Port, ports)
	default:
		return nil
	}
	seconds := func(n int32, least time.Duration) time.Duration { return max(time.Duration(n)*time.Second, least) }
	return &probe{
		check:   check,
		delay:   seconds(p.InitialDelaySeconds, 0),
		period:  seconds(p.PeriodSeconds, time.Second),
		timeout: seconds(p.TimeoutSeconds, time.Second),
		success: int(max(p.SuccessThreshold, 1)),
		failure: int(max(p.FailureThreshold, 1)),
	}
}

// hostPort returns the loopback address for a container port, given as a number or a
// name.
func hostPort(c *corev1.Container, port intstr.IntOrString, ports map[int]int) (string, error) {
	number := port.IntValue()
	for _, named := range c.Ports {
		if port.Type == intstr.String && named.Name == port.StrVal {
			number = int(named.ContainerPort)
		}
	}
	host, ok := ports[number]
	if !ok {
		return "", fmt.Errorf("cannot probe port %s: %w", port.String(), errNotListening)
	}
	return net.JoinHostPort(listenHost, strconv.Itoa(host)), nil
}

// httpCheck returns a check that sends a request to the process. It ignores the host
// of the probe: a fleet must not make the node call other addresses.
func httpCheck(c *corev1.Container, get *corev1.HTTPGetAction, ports map[int]int) func(context.Context) error {
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			// A kubelet does not verify certificates of probes either.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the kubelet: a probe asks for life, not for identity
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) error {
		address, err := hostPort(c, get.Port, ports)
		if err != nil {
			return err
		}
		url := strings.ToLower(string(get.Scheme))
		if url != "https" {
			url = "http"
		}
		url += "://" + address + "/" + strings.TrimPrefix(get.Path, "/")
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("cannot probe: %w", err)
		}
		for _, h := range get.HTTPHeaders {
			req.Header.Set(h.Name, h.Value)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.CopyN(io.Discard, resp.Body, 10<<10)
		if resp.StatusCode < 200 || resp.StatusCode >= 400 {
			return fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
		}
		return nil
	}
}

func tcpCheck(c *corev1.Container, port intstr.IntOrString, ports map[int]int) func(context.Context) error {
	return func(ctx context.Context) error {
		address, err := hostPort(c, port, ports)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// probe runs the container's probes until the context ends. It returns an error when
// the process must be restarted.
func (r *runner) probe(ctx context.Context, ps probes) error {
	if ps.startup != nil {
		started, err := ps.startup.await(ctx)
		if !started {
			return err
		}
		r.p.set(r.container.Name, func(s *containerState) {
			s.started = true
			s.ready = ps.readiness == nil
		})
	}
	ctx, cancel := context.WithCancel(ctx)
	dead := make(chan error, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if ps.readiness == nil {
			return
		}
		ps.readiness.watch(ctx, func(ok bool, err error) {
			if !ok {
				r.p.event(corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed: %v", err)
			}
			r.p.set(r.container.Name, func(s *containerState) { s.ready = ok })
		})
	}()
	go func() {
		if ps.liveness == nil {
			dead <- nil
			return
		}
		dead <- ps.liveness.watchLiveness(ctx)
	}()
	err := <-dead
	if err == nil {
		// Without a liveness probe only the end of the process ends the probes.
		<-watched
	}
	cancel()
	<-watched
	return err
}

// try runs the check once.
func (p *probe) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.check(ctx)
}

// await waits for the first success of a startup probe. It returns an error if there
// is none within the time that the thresholds allow.
func (p *probe) await(ctx context.Context) (bool, error) {
	process.Pause(ctx, p.delay)
	deadline := time.Now().Add(p.period * time.Duration(p.failure))
	for ctx.Err() == nil {
		err := p.try(ctx)
		if err == nil {
			return true, nil
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("startup probe failed: %w", err)
		}
		process.Pause(ctx, min(eager, p.period))
	}
	return false, nil
}

// watch reports each change of readiness. The first state, unready, is not reported.
func (p *probe) watch(ctx context.Context, report func(ok bool, err error)) {
	ready, ever, streak := false, false, 0
	process.Pause(ctx, p.delay)
	for ctx.Err() == nil {
		err := p.try(ctx)
		if ctx.Err() != nil {
			return
		}
		if (err == nil) == ready {
			streak = 0
		} else {
			streak++
		}
		if !ready && streak >= p.success || ready && streak >= p.failure {
			ready, streak, ever = !ready, 0, true
			report(ready, err)
		}
		if ever {
			process.Pause(ctx, p.period)
			continue
		}
		process.Pause(ctx, min(eager, p.period))
	}
}

// watchLiveness returns an error when consecutive failures of the probe reach its
// threshold, and nil when the context ends.
func (p *probe) watchLiveness(ctx context.Context) error {
	failures := 0
	process.Pause(ctx, max(p.delay, p.period))
	for ctx.Err() == nil {
		err := p.try(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures = 0
		default:
			failures++
		}
		if failures >= p.failure {
			return fmt.Errorf("liveness probe failed: %w", err)
		}
		process.Pause(ctx, p.period)
	}
	return nil
}

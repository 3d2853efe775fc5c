package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// completeAfter is the running time of a simulated container of a Job: long enough
// for clients to see it Running.
const completeAfter = 200 * time.Millisecond

// podState is one Pod on the node.
type podState struct {
	n               *Node
	namespace, name string
	uid             types.UID
	ip              netip.Addr
	dir             string
	creds           *credentials

	// life ends with the Pod. ctx also ends when an update restarts the processes.
	life   context.Context
	die    context.CancelFunc
	ctx    context.Context
	cancel context.CancelFunc
	ending sync.Once

	// publishing serializes reports. No report follows after silent is set.
	publishing sync.Mutex
	silent     bool

	mu         sync.Mutex
	pod        *corev1.Pod
	states     map[string]*containerState
	runners    map[string]*runner
	conditions []corev1.PodCondition
	grace      time.Duration
}

func newPodState(n *Node, pod *corev1.Pod, ip netip.Addr) *podState {
	p := &podState{
		n: n, namespace: pod.Namespace, name: pod.Name, uid: pod.UID, ip: ip,
		dir:   filepath.Join(n.cfg.Dir, string(pod.UID)),
		grace: gracePeriod(pod),
	}
	p.creds = &credentials{pod: p}
	p.life, p.die = context.WithCancel(n.runCtx)
	p.ctx, p.cancel = context.WithCancel(p.life)
	p.take(pod, map[string]*containerState{})
	p.conditions = pod.Status.Conditions
	return p
}

// take sets the Pod, with the known states of its containers. The caller must hold
// the lock, or be the only user of p.
func (p *podState) take(pod *corev1.Pod, before map[string]*containerState) {
	now := time.Now()
	pod = pod.DeepCopy()
	if pod.Status.StartTime == nil {
		start := metav1.NewTime(now)
		pod.Status.StartTime = &start
	}
	pod.Status.PodIP, pod.Status.HostIP = p.ip.String(), hostIP
	p.pod = pod
	p.states = map[string]*containerState{}
	p.runners = map[string]*runner{}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		program, known := programFor(p.n.cfg.Programs, c)
		if !known || !p.n.cfg.Platform(pod.Namespace) {
			s := runningState(pod, c.Name, now)
			if old := before[c.Name]; old != nil {
				s.restarts = old.restarts
			}
			p.states[c.Name] = &s
			continue
		}
		s := &containerState{state: waiting("ContainerCreating", "")}
		if old := before[c.Name]; old != nil {
			s.restarts = old.restarts + 1
		}
		p.states[c.Name] = s
		p.runners[c.Name] = newRunner(p, program, c)
	}
}

// start reports the Pod's first state and starts its processes.
func (p *podState) start() {
	p.mu.Lock()
	runners := make([]*runner, 0, len(p.runners))
	for _, r := range p.runners {
		runners = append(runners, r)
	}
	completes := !restarts(p.pod, false)
	ctx := p.ctx
	p.mu.Unlock()
	for _, r := range runners {
		p.n.running.Go(func() {
			defer close(r.done)
			r.run(ctx)
		})
	}
	if completes {
		time.AfterFunc(completeAfter, p.complete)
	}
	p.publish()
}

// complete ends the simulated containers with success.
func (p *podState) complete() {
	p.mu.Lock()
	for name, s := range p.states {
		if p.runners[name] == nil {
			s.terminate(0, "Completed", "", time.Now())
		}
	}
	p.mu.Unlock()
	p.publish()
}

// update sets the changed Pod. If its containers have changed, update restarts the
// processes.
func (p *podState) update(pod *corev1.Pod) {
	p.mu.Lock()
	if reflect.DeepEqual(p.pod.Spec.Containers, pod.Spec.Containers) {
		start := p.pod.Status.StartTime
		p.pod = pod.DeepCopy()
		p.pod.Status.StartTime = start
		p.pod.Status.PodIP, p.pod.Status.HostIP = p.ip.String(), hostIP
		p.mu.Unlock()
		p.publish()
		return
	}
	stop, old := p.cancel, p.runners
	p.ctx, p.cancel = context.WithCancel(p.life)
	p.mu.Unlock()
	stop()
	for _, r := range old {
		<-r.done
	}
	p.mu.Lock()
	pod.Status.StartTime = p.pod.Status.StartTime
	p.take(pod, p.states)
	p.mu.Unlock()
	p.start()
}

// end stops the Pod's processes within its grace period, reports their end and
// removes the Pod from the API. It does not wait for this. Only the first call has
// an effect.
func (p *podState) end(pod *corev1.Pod) {
	p.ending.Do(func() {
		p.mu.Lock()
		p.grace = gracePeriod(pod)
		p.mu.Unlock()
		p.n.running.Go(func() { p.finish(pod) })
	})
}

func (p *podState) finish(pod *corev1.Pod) {
	p.stopProcesses()
	if p.n.runCtx.Err() != nil {
		// The node stops; the Pod ends when the node runs again.
		return
	}
	p.hush()
	p.mu.Lock()
	code, reason := int32(0), "Completed"
	if !restarts(p.pod, true) || !restarts(p.pod, false) {
		code, reason = exitTerminated, "Error"
	}
	for _, s := range p.states {
		s.terminate(code, reason, "", time.Now())
	}
	final := p.reportLocked()
	now := metav1.Now()
	final.DeletionTimestamp = &now
	final.Status.Phase = phase(final, final.Status.ContainerStatuses)
	p.mu.Unlock()

	client := patchingPods{p.n.cfg.Client.CoreV1(), p.n.log}.Pods(p.namespace)
	if _, err := client.UpdateStatus(p.n.runCtx, final, metav1.UpdateOptions{}); err != nil {
		p.n.log.Warn("cannot report the end of a Pod", "namespace", p.namespace, "pod", p.name, "error", err)
	}
	p.n.forget(p)
	p.removeDir()
	// If this fails, virtual-kubelet removes the Pod after the grace period.
	if err := p.n.remove(p.n.runCtx, pod); err != nil {
		p.n.log.Warn("cannot remove a Pod", "namespace", p.namespace, "pod", p.name, "error", err)
	}
}

// discard stops a Pod that has been replaced.
func (p *podState) discard() {
	p.hush()
	p.stopProcesses()
	if p.n.runCtx.Err() == nil {
		p.removeDir()
	}
}

// exitTerminated is the exit code of a program that ended by SIGTERM.
const exitTerminated = 128 + 15

func (p *podState) stopProcesses() {
	p.mu.Lock()
	runners := p.runners
	p.mu.Unlock()
	p.die()
	for _, r := range runners {
		<-r.done
	}
}

func (p *podState) removeDir() {
	if err := os.RemoveAll(p.dir); err != nil {
		p.n.log.Warn("cannot remove the state folder of a Pod", "namespace", p.namespace, "pod", p.name, "error", err)
	}
}

// hush stops all further reports.
func (p *podState) hush() {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	p.silent = true
}

// publish reports the Pod's present status.
func (p *podState) publish() {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	if p.silent || p.n.runCtx.Err() != nil {
		return
	}
	p.mu.Lock()
	pod := p.reportLocked()
	p.mu.Unlock()
	p.n.notify(pod)
}

// reportLocked returns the Pod with its present status.
func (p *podState) reportLocked() *corev1.Pod {
	pod := p.pod.DeepCopy()
	known := append([]corev1.PodCondition{}, p.conditions...)
	if live, err := p.n.lister.Pods(p.namespace).Get(p.name); err == nil && live.UID == p.uid {
		known = append(known, live.Status.Conditions...)
	}
	pod.Status = podStatus(pod, p.ip.String(), p.states, known, time.Now())
	p.conditions = pod.Status.Conditions
	return pod
}

// snapshot returns a copy of the Pod from virtual-kubelet.
func (p *podState) snapshot() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pod.DeepCopy()
}

// set changes the state of a container and reports it.
func (p *podState) set(container string, change func(*containerState)) {
	p.mu.Lock()
	if s := p.states[container]; s != nil {
		change(s)
	}
	p.mu.Unlock()
	p.publish()
}

func (p *podState) hostAddress(port int) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.runners) == 0 {
		return "", fmt.Errorf("cannot reach port %d of Pod %s/%s: %w", port, p.namespace, p.name, ErrSimulated)
	}
	for _, r := range p.runners {
		if host, ok := r.ports[port]; ok {
			return net.JoinHostPort(listenHost, strconv.Itoa(host)), nil
		}
	}
	return "", fmt.Errorf("cannot reach Pod %s/%s: none of its processes listens at port %d", p.namespace, p.name, port)
}

// event records an event about the Pod.
func (p *podState) event(kind, reason, format string, args ...any) {
	p.n.events.Eventf(p.snapshot(), kind, reason, format, args...)
}

// gracePeriod returns the time between SIGTERM and SIGKILL for the Pod's processes.
func gracePeriod(pod *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if pod.DeletionGracePeriodSeconds != nil {
		seconds = *pod.DeletionGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

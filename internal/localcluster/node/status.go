package node

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostIP is the address of the node. The API server reaches the kubelet endpoint at
// this address.
const hostIP = "127.0.0.1"

// containerState is the state of one container.
type containerState struct {
	state, last corev1.ContainerState
	restarts    int32
	started     bool
	ready       bool
	id          string
}

// runningState returns the state of a simulated container that runs.
func runningState(pod *corev1.Pod, name string, at time.Time) containerState {
	return containerState{
		state:   corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}},
		started: true,
		ready:   true,
		id:      "simulated://" + string(pod.UID) + "/" + name,
	}
}

// terminate sets the final state of a container, unless it has ended before.
func (s *containerState) terminate(code int32, reason, message string, at time.Time) {
	if s.state.Terminated != nil {
		return
	}
	end := &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message,
		StartedAt: metav1.NewTime(at), FinishedAt: metav1.NewTime(at), ContainerID: s.id,
	}
	if s.state.Running != nil {
		end.StartedAt = s.state.Running.StartedAt
	}
	s.state = corev1.ContainerState{Terminated: end}
	s.ready, s.started = false, false
}

// status returns the container's status in the form of the API.
func (s *containerState) status(c *corev1.Container) corev1.ContainerStatus {
	started := s.started
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: s.id,
		State: s.state, LastTerminationState: s.last,
		Ready: s.ready, Started: &started, RestartCount: s.restarts,
	}
}

// podStatus returns the status of a Pod for the given states of its containers.
// Unchanged conditions keep the transition time of old.
func podStatus(pod *corev1.Pod, ip string, states map[string]*containerState, old []corev1.PodCondition, now time.Time) corev1.PodStatus {
	start := metav1.NewTime(now)
	if pod.Status.StartTime != nil {
		start = *pod.Status.StartTime
	}
	st := corev1.PodStatus{
		HostIP: hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}},
		PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		StartTime: &start, QOSClass: pod.Status.QOSClass,
		ObservedGeneration: pod.Generation,
	}
	for i := range pod.Spec.InitContainers {
		st.InitContainerStatuses = append(st.InitContainerStatuses, initStatus(pod, &pod.Spec.InitContainers[i], start.Time, states))
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		st.ContainerStatuses = append(st.ContainerStatuses, states[c.Name].status(c))
	}
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		s := runningState(pod, c.Name, start.Time)
		s.ready, s.started = false, false
		st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, s.status(&c))
	}
	st.Phase = phase(pod, st.ContainerStatuses)
	st.Conditions = conditions(pod, &st, old, now)
	return st
}

// initStatus returns the status of an init container: terminated, or running for a
// sidecar. A sidecar ends with the Pod's other containers.
func initStatus(pod *corev1.Pod, c *corev1.Container, at time.Time, states map[string]*containerState) corev1.ContainerStatus {
	s := runningState(pod, c.Name, at)
	if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways || allEnded(states) {
		s.terminate(0, "Completed", "", at)
		s.ready = true
	}
	return s.status(c)
}

func allEnded(states map[string]*containerState) bool {
	for _, s := range states {
		if s.state.Terminated == nil {
			return false
		}
	}
	return true
}

// phase returns the phase of a Pod by the kubelet's rules: a terminal phase only if
// no container will run again.
func phase(pod *corev1.Pod, statuses []corev1.ContainerStatus) corev1.PodPhase {
	ended, failed, waiting := 0, 0, 0
	for _, s := range statuses {
		switch {
		case s.State.Terminated != nil:
			ended++
			if s.State.Terminated.ExitCode != 0 {
				failed++
			}
		case s.State.Waiting != nil && s.LastTerminationState.Terminated == nil:
			waiting++
		}
	}
	switch {
	case waiting > 0:
		return corev1.PodPending
	case ended < len(statuses) || pod.DeletionTimestamp == nil && restarts(pod, failed > 0):
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

// restarts reports whether the Pod's policy restarts a container that ended.
func restarts(pod *corev1.Pod, failed bool) bool {
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return failed
	}
	return true
}

// conditions returns the conditions that a kubelet owns. Other controllers own the
// others.
func conditions(pod *corev1.Pod, st *corev1.PodStatus, old []corev1.PodCondition, now time.Time) []corev1.PodCondition {
	unready := []string{}
	for _, s := range st.ContainerStatuses {
		if !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	containers := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}
	switch {
	case st.Phase == corev1.PodSucceeded:
		containers.Status, containers.Reason = corev1.ConditionFalse, "PodCompleted"
	case st.Phase == corev1.PodFailed:
		containers.Status, containers.Reason = corev1.ConditionFalse, "PodFailed"
	case len(unready) > 0:
		containers.Status, containers.Reason = corev1.ConditionFalse, "ContainersNotReady"
		containers.Message = "containers with unready status: " + bracket(unready)
	}
	ready := containers
	ready.Type = corev1.PodReady
	if missing := closedGates(pod, old); ready.Status == corev1.ConditionTrue && len(missing) > 0 {
		ready.Status, ready.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
		ready.Message = "readiness gates that are not true: " + bracket(missing)
	}
	initialized := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if st.Phase == corev1.PodSucceeded {
		initialized.Reason = "PodCompleted"
	}
	own := []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue},
		initialized, ready, containers,
	}
	for i := range own {
		own[i].ObservedGeneration = pod.Generation
		own[i].LastTransitionTime = metav1.NewTime(now)
		for _, c := range old {
			if c.Type == own[i].Type && c.Status == own[i].Status {
				own[i].LastTransitionTime = c.LastTransitionTime
			}
		}
	}
	return own
}

func closedGates(pod *corev1.Pod, current []corev1.PodCondition) (missing []string) {
	for _, gate := range pod.Spec.ReadinessGates {
		open := slices.ContainsFunc(current, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		})
		if !open {
			missing = append(missing, string(gate.ConditionType))
		}
	}
	return missing
}

// bracket formats names as the kubelet does in conditions: [a b].
func bracket(names []string) string { return "[" + strings.Join(names, " ") + "]" }

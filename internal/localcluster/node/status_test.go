package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func simulatedPod(policy corev1.RestartPolicy) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Generation: 3},
		Spec: corev1.PodSpec{
			RestartPolicy:  policy,
			InitContainers: []corev1.Container{{Name: "init", Image: "i"}, {Name: "side", Image: "s", RestartPolicy: &always}},
			Containers:     []corev1.Container{{Name: "c", Image: "img"}},
		},
	}
}

func conditionsOf(st corev1.PodStatus) map[corev1.PodConditionType]corev1.ConditionStatus {
	got := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range st.Conditions {
		got[c.Type] = c.Status
	}
	return got
}

func TestStatusOfSimulatedPod(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pod := simulatedPod(corev1.RestartPolicyAlways)
	s := runningState(pod, "c", now)
	st := podStatus(pod, "198.18.0.9", map[string]*containerState{"c": &s}, nil, now)
	if st.Phase != corev1.PodRunning || st.PodIP != "198.18.0.9" || st.HostIP != hostIP || st.StartTime == nil || st.ObservedGeneration != 3 {
		t.Errorf("a simulated Pod runs at once, with its address: %+v", st)
	}
	want := map[corev1.PodConditionType]corev1.ConditionStatus{
		corev1.PodReady: corev1.ConditionTrue, corev1.ContainersReady: corev1.ConditionTrue,
		corev1.PodInitialized: corev1.ConditionTrue, corev1.PodReadyToStartContainers: corev1.ConditionTrue,
	}
	if diff := cmp.Diff(want, conditionsOf(st)); diff != "" {
		t.Errorf("conditions: -want +got\n%s", diff)
	}
	if st.InitContainerStatuses[0].State.Terminated == nil || st.InitContainerStatuses[1].State.Running == nil {
		t.Errorf("an init container is done, a sidecar runs: %+v", st.InitContainerStatuses)
	}
}

func TestPhase(t *testing.T) {
	t.Parallel()
	now := time.Now()
	running := runningState(&corev1.Pod{}, "c", now)
	ended := func(code int32) containerState {
		s := running
		s.terminate(code, "x", "", now)
		return s
	}
	creating := containerState{state: waiting("ContainerCreating", "")}
	crashed := containerState{state: waiting("CrashLoopBackOff", ""), last: ended(1).state}
	tests := map[string]struct {
		reason string
		policy corev1.RestartPolicy
		state  containerState
		want   corev1.PodPhase
		ready  corev1.ConditionStatus
	}{
		"running":           {"it runs", corev1.RestartPolicyAlways, running, corev1.PodRunning, corev1.ConditionTrue},
		"creating":          {"never ran", corev1.RestartPolicyAlways, creating, corev1.PodPending, corev1.ConditionFalse},
		"crash loop":        {"it ran and will again", corev1.RestartPolicyAlways, crashed, corev1.PodRunning, corev1.ConditionFalse},
		"ended, always":     {"it will run again", corev1.RestartPolicyAlways, ended(0), corev1.PodRunning, corev1.ConditionFalse},
		"succeeded":         {"a Job's Pod is done", corev1.RestartPolicyNever, ended(0), corev1.PodSucceeded, corev1.ConditionFalse},
		"failed":            {"and failed", corev1.RestartPolicyNever, ended(1), corev1.PodFailed, corev1.ConditionFalse},
		"failed, restarts":  {"OnFailure runs it again", corev1.RestartPolicyOnFailure, ended(1), corev1.PodRunning, corev1.ConditionFalse},
		"succeeded, failed": {"OnFailure is content with success", corev1.RestartPolicyOnFailure, ended(0), corev1.PodSucceeded, corev1.ConditionFalse},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := podStatus(simulatedPod(tc.policy), "198.18.0.1", map[string]*containerState{"c": &tc.state}, nil, now)
			if st.Phase != tc.want {
				t.Errorf("%s: got phase %s, want %s", tc.reason, st.Phase, tc.want)
			}
			if got := conditionsOf(st)[corev1.PodReady]; got != tc.ready {
				t.Errorf("%s: got Ready %s, want %s", tc.reason, got, tc.ready)
			}
		})
	}
}

func TestConditionsKeepTimeAndHonourGates(t *testing.T) {
	t.Parallel()
	then, now := time.Now().Add(-time.Hour), time.Now()
	pod := simulatedPod(corev1.RestartPolicyAlways)
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	s := runningState(pod, "c", now)
	states := map[string]*containerState{"c": &s}
	first := podStatus(pod, "198.18.0.1", states, nil, then)
	if got := conditionsOf(first)[corev1.PodReady]; got != corev1.ConditionFalse {
		t.Errorf("a gate that nobody opened must keep the Pod unready, got %s", got)
	}
	opened := append(first.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
	second := podStatus(pod, "198.18.0.1", states, opened, now)
	for _, c := range second.Conditions {
		want := then
		if c.Type == corev1.PodReady {
			want = now
			if c.Status != corev1.ConditionTrue {
				t.Errorf("the gate is open: the Pod must be ready")
			}
		}
		if !c.LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s changed at %s, want %s", c.Type, c.LastTransitionTime, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	a := newAddresses()
	seen := map[string]bool{}
	for range 1000 {
		ip, err := a.take("")
		if err != nil || !podNetwork.Contains(ip) || seen[ip.String()] {
			t.Fatalf("got %s, %v after %d: want a new address of the network", ip, err, len(seen))
		}
		seen[ip.String()] = true
	}
	first, _ := a.take("198.18.9.9")
	if first.String() != "198.18.9.9" {
		t.Errorf("got %s: an address that is free and ours is given to the Pod that had it", first)
	}
	if again, _ := a.take("198.18.9.9"); again == first {
		t.Errorf("one address was given twice")
	}
	if foreign, _ := a.take("10.0.0.1"); !podNetwork.Contains(foreign) {
		t.Errorf("got %s outside of the network", foreign)
	}
}

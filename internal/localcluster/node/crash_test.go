package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestCrashed checks which ends of a program count as failed starts.
func TestCrashed(t *testing.T) {
	t.Parallel()
	var got []*Crash
	r := &runner{
		program: Program{Name: "helm-controller"},
		p:       &podState{n: &Node{cfg: Config{OnCrash: func(c *Crash) { got = append(got, c) }}}, namespace: "flux-system", name: "helm"},
	}
	end := func(code int32) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: code, Message: "invalid configuration"}
	}
	r.crashed(end(1), time.Second)
	r.crashed(end(1), time.Second)
	r.crashed(end(1), time.Hour)
	r.crashed(end(137), time.Second)
	r.crashed(end(0), time.Second)
	r.crashed(end(2), time.Second)
	var starts []int
	for _, c := range got {
		starts = append(starts, c.Starts)
	}
	if len(starts) != 4 || starts[0] != 1 || starts[1] != 2 || starts[2] != 1 || starts[3] != 1 {
		t.Errorf("starts %v, want 1 2 1 1: a long run and a signal begin anew", starts)
	}
	if text := got[1].Error(); !strings.Contains(text, "helm-controller (Pod flux-system/helm) does not start: it ended with exit code 1, 2 times") || !strings.Contains(text, "invalid configuration") {
		t.Errorf("got %q", text)
	}
	got = nil
	for range refusals + 3 {
		r.refused(errors.New("no such Secret"))
	}
	if len(got) != 1 || !strings.Contains(got[0].Error(), "cannot start: no such Secret") {
		t.Errorf("a container that cannot be started is reported once, after some attempts: %v", got)
	}
}

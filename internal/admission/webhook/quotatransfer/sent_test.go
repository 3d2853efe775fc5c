package quotatransfer

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestSent checks that requests that passed are counted until the API server counts them.
func TestSent(t *testing.T) {
	t.Parallel()
	list := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	var s passedRequests
	now := time.Now()
	for _, step := range []struct {
		reason string
		let    []int64
		used   int64
		after  time.Duration
		want   int64
	}{
		{"nothing was let through", nil, 3, 0, 0},
		{"what was let through is on its way", []int64{1, 2}, 3, 0, 3},
		{"the first is counted", nil, 4, 0, 2},
		{"a part of the second is counted with others", nil, 5, 0, 2},
		{"the second is counted", []int64{}, 6, 0, 0},
		{"something else is counted", nil, 9, 0, 0},
		{"one more, and something is deleted", []int64{1}, 2, 0, 1},
		{"it never comes", nil, 2, maxCountDelay, 0},
	} {
		now = now.Add(step.after)
		for _, n := range step.let {
			s.add(list(n), now)
		}
		got := s.observe(list(step.used), now)[corev1.ResourcePods]
		if got.Value() != step.want {
			t.Errorf("%s: %d is on its way, want %d", step.reason, got.Value(), step.want)
		}
	}
}

package quotatransfer

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestFalling expects a used amount to fall further until it has not fallen for a while.
func TestFalling(t *testing.T) {
	t.Parallel()
	var f fallingUsage
	now := time.Now()
	for _, step := range []struct {
		reason     string
		used, want int64
		after      time.Duration
	}{
		{"the first amount is believed", 3, 3, 0},
		{"more is believed at once", 5, 5, 0},
		{"less is not", 4, 5, settleDelay},
		{"it falls again", 2, 5, settleDelay - 1},
		{"it has not fallen for long enough", 2, 5, settleDelay - 1},
		{"more than before is expected at once", 6, 6, 0},
		{"it has not fallen for long enough since", 6, 6, 1},
		{"less again", 3, 6, 0},
		{"and nothing more", 3, 3, settleDelay},
		{"it begins to fall", 2, 3, settleDelay},
		{"it falls for too long", 1, 1, maxHeld},
	} {
		now = now.Add(step.after)
		used := func(n int64) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(n, resource.DecimalSI)}
		}
		got := f.observe(used(step.used), now)[corev1.ResourcePods]
		if got.Value() != step.want {
			t.Errorf("%s: %d is expected, want %d", step.reason, got.Value(), step.want)
		}
	}
}

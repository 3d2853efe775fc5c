package tenancy

import (
	"math"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWait(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		objects int32
		timeout time.Duration
		workers int
		want    time.Duration
	}{
		{"the defaults", 100, 15 * time.Minute, Workers, 6*time.Hour + 30*time.Minute},
		{"narrow bounds", 20, time.Minute, Workers, 6 * time.Minute},
		{"more workers", 20, time.Minute, 20, 2 * time.Minute},
		{"a timeout below what Flux waits at least", 20, 5 * time.Second, Workers, 180 * time.Second},
		{"workers that nobody has named", 20, time.Minute, 0, 6 * time.Minute},
		{"longer than a Duration holds", 10000, 365 * 24 * time.Hour, 1, math.MaxInt64},
		{"no objects", 0, time.Minute, Workers, 0},
	} {
		got := MaxQueueDelay(v1alpha1.Bounds{MaxObjects: tc.objects, MaxTimeout: metav1.Duration{Duration: tc.timeout}}, tc.workers)
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
		}
	}
}

package profile

import (
	"testing"
	"time"
)

func TestPauseAfter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason     string
		took, want time.Duration
	}{
		{"nothing was looked at yet", 0, minPause},
		{"few namespaces are looked at once a second", 5 * time.Millisecond, minPause},
		{"many take a fiftieth of the time, however many", 100 * time.Millisecond, 5 * time.Second},
		{"people do not wait for long", time.Minute, maxPause},
	} {
		if got := pauseAfter(tc.took); got != tc.want {
			t.Errorf("%s: after %s it pauses for %s, want %s", tc.reason, tc.took, got, tc.want)
		}
	}
}

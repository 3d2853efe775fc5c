// Package testwait is how tests wait: for a condition, with a reason and a
// deadline, never for a time.
package testwait

import (
	"testing"
	"time"
)

// interval is how often a condition is looked at.
const interval = 10 * time.Millisecond

// For polls until ok returns true, and fails the test with the reason and what
// ok said last when the patience is over. What ok says should name what is still
// missing.
func For(t testing.TB, reason string, patience time.Duration, ok func() (done bool, missing string)) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		done, missing := ok()
		if done {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("interrupted while waiting for %s: %s", reason, missing)
		case <-deadline.C:
			t.Fatalf("still waiting after %s for %s: %s", patience, reason, missing)
		case <-tick.C:
		}
	}
}

package webhook

import (
	"fmt"
	"testing"
)

// The limit refuses a tenant that used up its burst and no other tenant. A tenant that keeps
// sending requests gets no new burst when the cache evicts others.
func TestLimits(t *testing.T) {
	t.Parallel()
	l := NewLimits()
	exhaust := func() (allowed int) {
		for l.Allow("busy") {
			allowed++
		}
		return allowed
	}
	if got := exhaust(); got < tenantBurst {
		t.Errorf("%d requests were allowed, want at least the burst of %d", got, tenantBurst)
	}
	for i := range 3 * maxLimited {
		if !l.Allow(fmt.Sprint("other-", i)) {
			t.Fatalf("request %d of somebody else was refused", i)
		}
		// The limiter adds tokens as time passes.
		if i%1000 == 0 {
			if got := exhaust(); got > tenantBurst/2 {
				t.Fatalf("after %d other names, %d requests were allowed at once", i, got)
			}
		}
	}
	if got := l.of.Len(); got > maxLimited {
		t.Errorf("%d names are remembered, want at most %d", got, maxLimited)
	}
}

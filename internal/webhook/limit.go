package webhook

import (
	"sync"

	"golang.org/x/time/rate"
)

const (
	// tenantRate is how many namespaces a second may be asked for by the owners of one
	// tenant, on average, and tenantBurst at once. What an owner asks for is written
	// down, so that it costs the platform more than the owner.
	tenantRate, tenantBurst = 50, 1000
	// maxLimited is how many tenants and users are remembered.
	maxLimited = 10000
)

// limits bound how much each tenant asks. The zero value is ready, and may be used from
// many goroutines.
type limits struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

// allow says whether one more may be asked.
func (l *limits) allow(who string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil || len(l.of) >= maxLimited {
		l.of = map[string]*rate.Limiter{}
	}
	one, ok := l.of[who]
	if !ok {
		one = rate.NewLimiter(tenantRate, tenantBurst)
		l.of[who] = one
	}
	return one.Allow()
}

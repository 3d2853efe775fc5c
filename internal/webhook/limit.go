package webhook

import (
	"sync"

	"golang.org/x/time/rate"
)

const (
	// tenantRate is the average number of namespaces per second that the owners of one
	// tenant may request, and tenantBurst the maximum at once. The webhook writes each
	// request to a ledger, so a request costs the platform more than the owner.
	tenantRate, tenantBurst = 50, 1000
	// maxLimited is the maximum number of tenants and users that limits remembers.
	maxLimited = 10000
)

// limits bound the rate of requests of each tenant. The zero value is ready, and may be
// used from many goroutines.
type limits struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

// allow reports whether a tenant or user may send one more request.
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

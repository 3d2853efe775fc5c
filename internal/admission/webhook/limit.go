package webhook

import (
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// tenantRate is the average number of namespaces per second that the owners of one tenant may request,
	// and tenantBurst is the maximum burst. The webhook writes each admission to the reservations, so a
	// request costs the platform more than the owner.
	tenantRate, tenantBurst = 50, 1000
	// maxLimited is the maximum number of tenants and users for which limits keeps a rate limiter.
	maxLimited = 10000
)

// limits bounds the request rate of each tenant and user. With more than maxLimited of them, it drops the
// least recently used limiter. It is safe for concurrent use.
type limits struct {
	mu sync.Mutex
	of *lru.Cache
}

func newLimits() *limits { return &limits{of: lru.New(maxLimited)} }

// allow reports whether a tenant or user may send one more request.
func (l *limits) allow(who string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.of.Get(who)
	if !ok {
		one = rate.NewLimiter(tenantRate, tenantBurst)
		l.of.Add(who, one)
	}
	return one.(*rate.Limiter).Allow()
}

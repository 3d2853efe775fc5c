package webhook

import (
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// TenantRate is the average number of requests per second that one tenant may send to a
	// webhook, such as for namespaces, and tenantBurst is the maximum burst. The webhook writes each admission to
	// the reservations, so a request costs the platform more than the tenant.
	TenantRate  = 50
	tenantBurst = 1000
	// maxLimited is the maximum number of tenants and users for which Limits keeps a rate limiter.
	maxLimited = 10000
)

// Limits bound the request rate of each tenant and user. With more than maxLimited of them, Limits drop the
// least recently used limiter. They are safe for concurrent use.
type Limits struct {
	mu sync.Mutex
	of *lru.Cache
}

// NewLimits returns Limits that nobody has used.
func NewLimits() *Limits { return &Limits{of: lru.New(maxLimited)} }

// Allow reports whether a tenant or user may send one more request.
func (l *Limits) Allow(who string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.of.Get(who)
	if !ok {
		one = rate.NewLimiter(TenantRate, tenantBurst)
		l.of.Add(who, one)
	}
	return one.(*rate.Limiter).Allow()
}

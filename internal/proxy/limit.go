package proxy

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// flowDistinguisher returns the key under which the limits count a user. The service
// accounts of a tenant have one key, and so have the service accounts of a namespace
// without a tenant, because an account there can create more accounts. Callers use the same
// key for take and giveBack: a namespace may join a tenant in between.
func (v *authorizationCache) flowDistinguisher(who user.Info) string {
	namespace, _, err := serviceaccount.SplitUsername(who.GetName())
	if err != nil {
		return who.GetName()
	}
	if tenant, _ := v.tenantNamed(namespace); tenant != "" {
		return "the service accounts of tenant " + tenant
	}
	return "the service accounts of namespace " + namespace
}

// quota limits how many units each user may hold at a time, and all users together.
type quota struct {
	max, all int // 0 means no limit

	mu    sync.Mutex
	taken map[string]int
	sum   int
}

func newQuota(maximum, all int) *quota {
	return &quota{max: maximum, all: all, taken: map[string]int{}}
}

// take takes one unit for a key, or returns false if the key or all keys together hold the
// maximum. Call giveBack after take returned true.
func (q *quota) take(who string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.max > 0 && q.taken[who] >= q.max || q.all > 0 && q.sum >= q.all {
		return false
	}
	q.taken[who]++
	q.sum++
	return true
}

func (q *quota) giveBack(who string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum--
	if q.taken[who]--; q.taken[who] <= 0 {
		delete(q.taken, who)
	}
}

// withInFlightLimit limits how many requests the proxy handles at a time, and the time and
// the body of each. A long-running request has none of these limits.
func (p *Proxy) withInFlightLimit(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
		if c.longRunning() {
			defer w.unbound()()
			return next(w, r.WithContext(withCall(r.Context(), c)), c)
		}
		if !p.inFlight.take("") {
			return tooMany("in-flight", "the proxy has too many requests, try again later")
		}
		defer p.inFlight.giveBack("")
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(withCall(ctx, c))
		p.boundBody(w, r)
		return next(w, r, c)
	}
}

// boundBody limits the size of a request's body and the time to read it.
func (p *Proxy) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.slow.body))
}

// withUserLimits limits the requests of each user, so that the slow requests of one user do
// not delay those of another, and the memory that they take.
func (p *Proxy) withUserLimits(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
		c.flow = p.view.flowDistinguisher(c.caller)
		if c.longRunning() {
			c.room = p.memory.OpenExact(c.flow)
		} else {
			if !p.perUser.take(c.flow) {
				return tooMany("quota", "%q has too many requests under way: at most %d at a time", c.flow, p.perUser.max)
			}
			defer p.perUser.giveBack(c.flow)
			c.room = p.memory.Open(c.flow)
		}
		defer c.room.Close()
		return next(w, r, c)
	}
}

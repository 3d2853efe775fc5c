package proxy

import (
	"sync"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// payer is for whom is counted what somebody has: of a service account all of its tenant,
// or of its namespace, since whoever has one there can make more of them. Ask once for
// what is taken and given back: a namespace may join a tenant in between.
func (v *view) payer(who user.Info) string {
	namespace, _, err := serviceaccount.SplitUsername(who.GetName())
	if err != nil {
		return who.GetName()
	}
	if tenant, _ := v.tenantNamed(namespace); tenant != "" {
		return "the service accounts of tenant " + tenant
	}
	return "the service accounts of namespace " + namespace
}

// quota bounds how many of something each of many may have at a time.
type quota struct {
	max int // 0 is no bound

	mu    sync.Mutex
	taken map[string]int
}

func newQuota(maximum int) *quota { return &quota{max: maximum, taken: map[string]int{}} }

// take takes one; it returns false when who has as many as allowed. Whoever got
// one gives it back.
func (q *quota) take(who string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.max > 0 && q.taken[who] >= q.max {
		return false
	}
	q.taken[who]++
	return true
}

func (q *quota) giveBack(who string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken[who]--; q.taken[who] <= 0 {
		delete(q.taken, who)
	}
}

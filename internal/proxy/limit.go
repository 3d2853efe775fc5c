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

// take takes one unit, or returns false if who holds the maximum, or all together do.
// Call giveBack after take returned true.
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

package proxy

import (
	"sync"

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

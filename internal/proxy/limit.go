package proxy

import "sync"

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

package tenantnamespace

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
)

// countPause is how long quotas leave out a kind that Kubernetes does not count yet:
// Kubernetes discovers new kinds every 30 s.
const countPause = 30 * time.Second

// countObjects returns the kinds that a quota may count, and the requeue delay. A quota
// with a kind that Kubernetes does not count refuses every new object of the kind, which is
// so for a while after the kind was defined. A kind that the namespace's own quota counts stays
// in it, even if the quota of another namespace, which may be older, has no count of the kind.
func (r *Reconciler) countObjects(ctx context.Context, have *contents) (kinds []string, later time.Duration, err error) {
	bounded := map[string]bool{}
	for _, q := range have.quotas {
		if q.Name != tenancy.QuotaName {
			continue
		}
		for name := range q.Spec.Hard {
			kind, count := strings.CutPrefix(string(name), "count/")
			bounded[kind] = count
		}
		for _, kind := range uncounted(q) {
			r.uncountedSince.set(kind, r.Now())
			delete(bounded, kind)
		}
	}
	served, err := r.Kinds.Served(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, kind := range served {
		if bounded[kind] {
			kinds = append(kinds, kind)
			continue
		}
		if at, ok := r.uncountedSince.get(kind); ok {
			if wait := at.Add(countPause).Sub(r.Now()); wait > 0 {
				later = max(later, wait)
				continue
			}
			r.uncountedSince.forget(kind)
		}
		kinds = append(kinds, kind)
	}
	return kinds, later, nil
}

// uncounted returns the kinds that a quota limits and that Kubernetes does not count.
func uncounted(q *corev1.ResourceQuota) []string {
	var kinds []string
	for name := range q.Status.Hard {
		kind, count := strings.CutPrefix(string(name), "count/")
		if _, used := q.Status.Used[name]; count && !used {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// times stores when each name was first seen. The zero value is empty.
type times struct {
	mu sync.Mutex
	at map[string]time.Time
}

// first returns when the name was first seen: now, when it was not.
func (t *times) first(name string, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.at[name]; ok {
		return at
	}
	t.setLocked(name, now)
	return now
}

func (t *times) set(name string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setLocked(name, now)
}

func (t *times) setLocked(name string, now time.Time) {
	if t.at == nil {
		t.at = map[string]time.Time{}
	}
	t.at[name] = now
}

func (t *times) get(name string) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.at[name]
	return at, ok
}

func (t *times) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, name)
}

package tenant

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
)

const (
	// movingDelay is how long requests in a namespace wait before its part of a quota
	// changes: long enough to store and count the requests that passed before. When a
	// quota changes, Kubernetes recounts the usage, and would miss these.
	movingDelay = 300 * time.Millisecond
	// quiet is how long the usage must stay unchanged, and no request wait, before the
	// manager moves parts that no request waits for.
	quiet = 2 * time.Second
)

// transferPace decides when parts of quotas may change. The zero value is ready, and may be used
// from many goroutines. Losing its state is safe: changes then take longer.
type transferPace struct {
	mu      sync.Mutex
	tenants map[string]*tenantTransferPace
}

// tenantTransferPace is the state of the parts of one tenant.
type tenantTransferPace struct {
	// used is the last recorded usage, and changed the time when it changed or when a
	// request waited last.
	used    string
	changed time.Time
	// marked is the time since which a part has been marked, and waiting the time since
	// which requests have waited for more of it, by [shareKey].
	marked, waiting map[string]time.Time
}

func shareKey(q *corev1.ResourceQuota) string { return q.Namespace + "/" + q.Name }

// see records the parts of a tenant, and reports whether the manager may move parts that
// no request waits for.
func (p *transferPace) see(tenant string, parts []corev1.ResourceQuota, now time.Time) (rebalance bool) {
	used := ""
	marked, waiting := map[string]bool{}, map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.tenants[tenant]
	for i := range parts {
		q := &parts[i]
		used += fmt.Sprintln(shareKey(q), q.Status.Used)
		if wishes, _ := tenancy.ReadQuotaRequests(q, now); len(wishes.Open(q.Status.Used)) > 0 {
			waiting[shareKey(q)] = true
		}
		if q.Annotations[tenancy.AnnotationMoving] != "" {
			marked[shareKey(q)] = true
		}
	}
	if known == nil {
		known = &tenantTransferPace{used: used, marked: map[string]time.Time{}, waiting: map[string]time.Time{}}
		if p.tenants == nil {
			p.tenants = map[string]*tenantTransferPace{}
		}
		p.tenants[tenant] = known
	}
	if known.used != used || len(waiting) > 0 {
		known.used, known.changed = used, now
	}
	follow(known.marked, marked, now)
	follow(known.waiting, waiting, now)
	return now.Sub(known.changed) >= quiet
}

// follow adds the time now for each new key in is, and removes the keys that are no
// longer in it.
func follow(since map[string]time.Time, is map[string]bool, now time.Time) {
	maps.DeleteFunc(since, func(key string, _ time.Time) bool { return !is[key] })
	for key := range is {
		if _, known := since[key]; !known {
			since[key] = now
		}
	}
}

// ready reports whether a part may change. Before that, requests in its namespace must
// have waited for movingDelay: because the part is marked or, if it becomes larger,
// because they wait for it.
func (p *transferPace) ready(tenant string, part *corev1.ResourceQuota, smaller bool, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.tenants[tenant]
	if known == nil {
		return false
	}
	for _, since := range []map[string]time.Time{known.marked, known.waiting} {
		if at, ok := since[shareKey(part)]; ok && now.Sub(at) >= movingDelay {
			return true
		}
		if smaller {
			break
		}
	}
	return false
}

// forget removes the state of a deleted tenant.
func (p *transferPace) forget(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tenants, tenant)
}

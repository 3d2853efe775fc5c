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
	// changes: long enough for what was let through to be stored and counted. When a
	// quota changes, Kubernetes counts anew what is used, and would leave that out.
	movingDelay = 150 * time.Millisecond
	// quiet is for how long nothing has to change before parts are moved that nobody
	// waits for.
	quiet = 2 * time.Second
)

// pace says when parts of quotas may change. The zero value is ready, and may be used
// from many goroutines. What it knows may be lost: then everything takes longer.
type pace struct {
	mu      sync.Mutex
	tenants map[string]*tenantPace
}

// tenantPace is about the parts of one tenant.
type tenantPace struct {
	// used is what was used when it changed last, and changed when that was.
	used    string
	changed time.Time
	// marked is since when a part is marked, and waiting since when requests wait for
	// more of it, by [shareKey].
	marked, waiting map[string]time.Time
}

func shareKey(q *corev1.ResourceQuota) string { return q.Namespace + "/" + q.Name }

// see notes what the parts of a tenant are, and returns whether parts may be moved that
// nobody waits for.
func (p *pace) see(tenant string, parts []corev1.ResourceQuota, now time.Time) (rebalance bool) {
	used := ""
	marked, waiting := map[string]bool{}, map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.tenants[tenant]
	for i := range parts {
		q := &parts[i]
		used += fmt.Sprintln(shareKey(q), q.Status.Used)
		wanted, _ := tenancy.ReadWishes(q, now).Open(q.Status.Used)
		if len(wanted) > 0 {
			waiting[shareKey(q)] = true
		}
		if q.Annotations[tenancy.AnnotationMoving] != "" {
			marked[shareKey(q)] = true
		}
	}
	if known == nil {
		known = &tenantPace{used: used, marked: map[string]time.Time{}, waiting: map[string]time.Time{}}
		if p.tenants == nil {
			p.tenants = map[string]*tenantPace{}
		}
		p.tenants[tenant] = known
	}
	if known.used != used {
		known.used, known.changed = used, now
	}
	follow(known.marked, marked, now)
	follow(known.waiting, waiting, now)
	return len(waiting) == 0 && now.Sub(known.changed) >= quiet
}

// follow keeps since when something is the case.
func follow(since map[string]time.Time, is map[string]bool, now time.Time) {
	maps.DeleteFunc(since, func(key string, _ time.Time) bool { return !is[key] })
	for key := range is {
		if _, known := since[key]; !known {
			since[key] = now
		}
	}
}

// ready says whether a part may change. Requests in its namespace have to wait for a
// while: because it is marked, or, if it becomes larger, because they wait for that.
func (p *pace) ready(tenant string, part *corev1.ResourceQuota, smaller bool, now time.Time) bool {
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

// forget is for a tenant that is gone.
func (p *pace) forget(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tenants, tenant)
}

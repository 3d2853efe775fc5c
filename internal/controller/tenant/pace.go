package tenant

import (
	"fmt"
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
	// held is since when requests in a namespace wait, by [shareKey].
	held map[string]time.Time
}

func shareKey(q *corev1.ResourceQuota) string { return q.Namespace + "/" + q.Name }

// see notes what the parts of a tenant are, and returns whether parts may be moved that
// nobody waits for.
func (p *pace) see(tenant string, parts []corev1.ResourceQuota, now time.Time) (rebalance bool) {
	used, waiting, present := "", false, map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.tenants[tenant]
	for i := range parts {
		q := &parts[i]
		used += fmt.Sprintln(shareKey(q), q.Status.Used)
		wanted, _ := tenancy.ReadWishes(q, now).Open(q.Status.Used)
		if len(wanted) > 0 || q.Annotations[tenancy.AnnotationMoving] != "" {
			present[shareKey(q)] = true
		}
		waiting = waiting || len(wanted) > 0
	}
	if known == nil {
		known = &tenantPace{used: used, held: map[string]time.Time{}}
		if p.tenants == nil {
			p.tenants = map[string]*tenantPace{}
		}
		p.tenants[tenant] = known
	}
	if known.used != used {
		known.used, known.changed = used, now
	}
	for key := range known.held {
		if !present[key] {
			delete(known.held, key)
		}
	}
	for key := range present {
		if _, ok := known.held[key]; !ok {
			known.held[key] = now
		}
	}
	return !waiting && now.Sub(known.changed) >= quiet
}

// ready says whether requests in the namespace of a part wait for so long that it may
// change.
func (p *pace) ready(tenant string, part *corev1.ResourceQuota, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.tenants[tenant]
	if known == nil {
		return false
	}
	since, held := known.held[shareKey(part)]
	return held && now.Sub(since) >= movingDelay
}

// forget is for a tenant that is gone.
func (p *pace) forget(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tenants, tenant)
}

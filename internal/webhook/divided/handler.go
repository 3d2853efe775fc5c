// Package divided is the webhook that lets a request wait while a part of its tenant's
// quota is moved into its namespace. It decides nothing: a request that it lets through is
// decided by the API server's own quota, and it refuses only what that quota refuses as
// well, to say what the tenant has left. While it is away each namespace has its part.
//
// It moves nothing itself. What requests wait for is written down on the namespace's part,
// and the one manager that has the lease divides anew: see [tenancy.Escrow].
package divided

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/quota"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// patience is how long a request waits, at most. It is less than the API server
	// waits for the webhook.
	patience = 8 * time.Second
	// grace is how long a request waits that does not fit into what the tenant has
	// left: Kubernetes counts what was deleted a moment ago a moment later.
	grace = time.Second
	// tick is how often is looked at what requests wait for.
	tick = 20 * time.Millisecond
	// viewDelay is how long the API server may take to learn of a quota after this
	// replica has.
	viewDelay = 50 * time.Millisecond
	// maxWaiting is how many requests wait in a namespace, at most. Others are decided
	// by what the namespace has.
	maxWaiting = 500
)

// indexTenant finds the parts of a tenant's quotas.
const indexTenant = "divided-quota-of"

// Handler answers the API server's question about a request in a namespace with a part of
// a quota. Several may run at a time.
type Handler struct {
	// Client reads from a cache with the index of [Index], and writes.
	Client client.Client
	// Replica is a name that no other replica has.
	Replica string
	// Owns says whether a user owns a tenant.
	Owns func(request admission.Request, tenant *v1alpha1.Tenant) bool

	mu sync.Mutex
	// lanes are the namespaces in which something waits or has waited.
	lanes map[string]*lane
}

// Index adds what the handler looks up to a cache.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.ResourceQuota{}, indexTenant, func(o client.Object) []string {
		if o.GetLabels()[tenancy.LabelQuotaScope] != tenancy.QuotaScopeTenant {
			return nil
		}
		return []string{o.GetLabels()[v1alpha1.LabelFluxTenant]}
	}); err != nil {
		return fmt.Errorf("cannot index the parts of quotas: %w", err)
	}
	return nil
}

// Handle implements [admission.Handler]. What cannot be told is left to the API server.
func (h *Handler) Handle(ctx context.Context, request admission.Request) admission.Response {
	demand, err := quota.Of(&request.AdmissionRequest)
	if err != nil || len(demand.Delta) == 0 {
		return admission.Allowed("")
	}
	parts, err := h.parts(ctx, request.Namespace)
	if err != nil {
		return admission.Allowed("").WithWarnings(err.Error())
	}
	w := &waiter{needs: map[string]corev1.ResourceList{}, sure: true, since: time.Now()}
	for i := range parts {
		counted, sure := demand.In(&parts[i].Spec)
		if len(counted) > 0 {
			w.needs[parts[i].Name] = counted
			w.sure = w.sure && sure
		}
	}
	switch {
	case len(w.needs) == 0:
		return admission.Allowed("")
	case request.DryRun != nil && *request.DryRun:
		return h.dryRun(ctx, request, parts, w)
	}
	l := h.lane(request.Namespace)
	if !l.join(w) {
		return admission.Allowed("")
	}
	defer l.leave(w)
	return h.wait(ctx, request, l, w)
}

// wait returns when the request fits, when it cannot, or when it has waited too long.
func (h *Handler) wait(ctx context.Context, request admission.Request, l *lane, w *waiter) admission.Response {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for waited := false; ; waited = true {
		verdict, err := l.look(ctx, h, w)
		switch {
		case err != nil:
			return admission.Allowed("").WithWarnings(err.Error())
		case verdict == fits && !waited:
			return admission.Allowed("")
		case verdict == fits:
			select {
			case <-time.After(viewDelay):
			case <-ctx.Done():
			}
			return admission.Allowed("")
		case verdict == refused:
			return h.refusal(ctx, request, w)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return admission.Allowed("").WithWarnings("the tenant's quota could not be moved into namespace " + request.Namespace + " in time: what the namespace has decides")
		}
	}
}

// dryRun says what would become of a request, and moves nothing.
func (h *Handler) dryRun(ctx context.Context, request admission.Request, parts []corev1.ResourceQuota, w *waiter) admission.Response {
	for i := range parts {
		need, ok := w.needs[parts[i].Name]
		if !ok || !tenancy.Lacks(rest(&parts[i]), need) {
			continue
		}
		total, err := h.total(ctx, &parts[i])
		if err != nil {
			return admission.Allowed("").WithWarnings(err.Error())
		}
		if total != nil && tenancy.Lacks(total.rest(), need) {
			return h.refusal(ctx, request, w)
		}
		return admission.Allowed("").WithWarnings("a dry run moves no quota: the tenant has enough left, and namespace " + request.Namespace + " gets it when the request is made")
	}
	return admission.Allowed("")
}

// parts returns the parts of quotas that a namespace has. They are the cache's own.
func (h *Handler) parts(ctx context.Context, namespace string) ([]corev1.ResourceQuota, error) {
	var list corev1.ResourceQuotaList
	if err := h.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{tenancy.LabelQuotaScope: tenancy.QuotaScopeTenant}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot read the quotas of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

func (h *Handler) lane(namespace string) *lane {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lanes == nil {
		h.lanes = map[string]*lane{}
	}
	l, ok := h.lanes[namespace]
	if !ok {
		l = &lane{namespace: namespace, sent: map[string]*sent{}, written: map[string]wrote{}, held: map[string]time.Time{}}
		h.lanes[namespace] = l
	}
	return l
}

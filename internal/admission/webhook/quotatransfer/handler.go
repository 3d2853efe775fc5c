// Package quotatransfer is the webhook that delays a request while the manager moves a part of the tenant's
// quota into the request's namespace. It does not enforce quotas: the API server's own quota decides about
// each request that the webhook allows. The webhook denies only requests that this quota would deny as
// well, in order to tell the user how much of the tenant's quota is free. While the webhook is down, each
// namespace keeps its part.
//
// The webhook itself moves nothing. It writes the demand of waiting requests, called a wish, to the
// namespace's part, and the manager that is the leader divides the quota again: see
// [tenancy.DistributeQuota].
package quotatransfer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/quota"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// patience is the maximum time that a request waits. It is less than the time that the API server waits
	// for the webhook.
	patience = 8 * time.Second
	// grace is the time that a request waits if it exceeds the free quota of the tenant: Kubernetes takes a
	// moment to subtract deleted objects from the usage.
	grace = 2 * time.Second
	// tick is the interval at which the handler checks waiting requests.
	tick = 20 * time.Millisecond
	// viewDelay is the maximum delay after which the API server knows a changed quota that this replica has
	// seen.
	viewDelay = 250 * time.Millisecond
	// kept is the time for which a namespace keeps the quota of a dry run, even if requests in other
	// namespaces need the quota: the API server's quota still has to check the dry run.
	kept = 2 * viewDelay
	// maxWaiting is the maximum number of waiting requests in a namespace. Further requests do not wait:
	// the API server decides about them with the namespace's current part.
	maxWaiting = 500
)

// indexTenant is the index of parts by tenant.
const indexTenant = "divided-quota-of"

// Handler answers the admission reviews for requests in namespaces with a part of a quota. It is safe for
// concurrent use.
type Handler struct {
	// Client reads from a cache with the index of [Index], and writes to the API server.
	Client client.Client
	// Replica is the name of this replica, unique among all replicas.
	Replica string
	// Owns reports whether the user of a request owns a tenant.
	Owns func(request admission.Request, tenant *v1alpha1.Tenant) bool
	// Stopped is closed when the replica stops. Requests then stop waiting.
	Stopped <-chan struct{}

	mu sync.Mutex
	// lanes are the queues of namespaces in which a request waits or has waited, by namespace.
	lanes map[string]*requestQueue
}

// Index adds the indexes that the handler uses to a cache. It returns an error if the cache cannot
// index ResourceQuotas.
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

// Handle implements [admission.Handler]. It allows a request about which it cannot decide, and leaves the
// decision to the API server.
func (h *Handler) Handle(ctx context.Context, request admission.Request) admission.Response {
	demand, err := quota.Of(&request.AdmissionRequest)
	if err != nil || len(demand.Delta) == 0 {
		return admission.Allowed("")
	}
	parts, err := h.parts(ctx, request.Namespace)
	if err != nil {
		return admission.Allowed("").WithWarnings(err.Error())
	}
	w := &waitingRequest{needs: map[string]corev1.ResourceList{}, sure: true, since: time.Now(), dryRun: request.DryRun != nil && *request.DryRun}
	for i := range parts {
		counted, sure := demand.In(&parts[i].Spec)
		if len(counted) > 0 {
			w.needs[parts[i].Name] = counted
			w.sure = w.sure && sure
		}
	}
	if len(w.needs) == 0 {
		return admission.Allowed("")
	}
	l := h.lane(request.Namespace)
	if !l.join(w) {
		return admission.Allowed("")
	}
	defer h.leave(ctx, l, w)
	return h.wait(ctx, request, l, w)
}

// leave removes a request from its queue. If it was the last one, leave withdraws the queue's wish after a
// delay: the wish would hold quota that requests in other namespaces need.
func (h *Handler) leave(ctx context.Context, l *requestQueue, w *waitingRequest) {
	if wish := l.leave(w); !wish {
		return
	}
	delay := maxCountDelay
	if w.dryRun {
		delay = kept
	}
	time.AfterFunc(delay, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		// If the withdrawal fails, the wish expires, because the replica does not renew it.
		_ = l.check(ctx, h, time.Now())
	})
}

// wait waits until the request fits, exceeds the tenant's quota, or has waited for the maximum time. It
// returns the response.
func (h *Handler) wait(ctx context.Context, request admission.Request, l *requestQueue, w *waitingRequest) admission.Response {
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
		case <-h.Stopped:
			return admission.Allowed("").WithWarnings("the manager stopped before it moved quota into namespace " + request.Namespace + ": the quota of the namespace decides")
		case <-ctx.Done():
			return admission.Allowed("").WithWarnings("the tenant's quota could not be moved into namespace " + request.Namespace + " in time: the quota of the namespace decides")
		}
	}
}

// parts returns the parts of quotas in a namespace. Do not change them: they are objects of the cache.
func (h *Handler) parts(ctx context.Context, namespace string) ([]corev1.ResourceQuota, error) {
	var list corev1.ResourceQuotaList
	if err := h.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{tenancy.LabelQuotaScope: tenancy.QuotaScopeTenant}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot read the quotas of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

func (h *Handler) lane(namespace string) *requestQueue {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lanes == nil {
		h.lanes = map[string]*requestQueue{}
	}
	l, ok := h.lanes[namespace]
	if !ok {
		l = &requestQueue{namespace: namespace, sent: map[string]*passedRequests{}, written: map[string]wrote{}, held: map[string]time.Time{}, falls: map[string]*fallingUsage{}}
		h.lanes[namespace] = l
	}
	return l
}

package quotatransfer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// gather is the time that the first request waits for others before the queue writes their wish: a
	// Deployment creates several Pods at once.
	gather = 10 * time.Millisecond
	// renewal is the interval at which the queue renews its wishes.
	renewal = time.Second
	// maxHeld is the maximum time that a request waits only because a part is about to change: the manager
	// that changes the part may have stopped.
	maxHeld = 2 * time.Second
	// settleDelay is the time for which the used amount must not fall before a request may use the freed
	// amount. Kubernetes recounts a quota for each deleted object, and a recount misses objects that are
	// admitted but not stored yet. Without the delay, requests between two recounts would use the same
	// amount twice.
	settleDelay = 300 * time.Millisecond
	// fieldOwner is the field manager of the wishes.
	fieldOwner = "tenure-webhook"
)

// waitState is the state of a waiting request.
type waitState int

const (
	// waits means that the free quota of the namespace does not suffice.
	waits waitState = iota
	// fits means that the free quota of the namespace suffices.
	fits
	// refused means that the free quota of the tenant does not suffice.
	refused
)

// waitingRequest is a request that waits.
type waitingRequest struct {
	// needs are the resources that the request needs, by the name of the part.
	needs map[string]corev1.ResourceList
	// sure is set if it is certain that the parts count the request.
	sure bool
	// dryRun is set if the API server will not count the request.
	dryRun bool
	// since is the time when the request arrived, and short the time since which the tenant's free quota
	// has been too small for it.
	since, short time.Time
	verdict      waitState
}

// requestQueue lets the requests in a namespace through in the order of their arrival, except requests for
// which the tenant's free quota does not suffice.
type requestQueue struct {
	namespace string

	mu      sync.Mutex
	waiters []*waitingRequest
	// looked is the time when the queue last checked all waiting requests.
	looked time.Time
	// sent are the requests that passed but that the quota does not count yet, and written is the last
	// wish, by the name of the part.
	sent    map[string]*passedRequests
	written map[string]wrote
	// keepUntil is the time until which the queue withdraws no wish, because of the last dry run.
	keepUntil time.Time
	// held is the time since which a part has been about to change, by the name of the part.
	held map[string]time.Time
	// falls are the used amounts that fell recently, by the name of the part.
	falls map[string]*fallingUsage
}

// fallingUsage is a used amount that may fall further.
type fallingUsage struct {
	// used is the used amount at the last call of observe, and most the largest amount since the amount
	// began to fall.
	used, most corev1.ResourceList
	// first is the time when the amount began to fall, and last the time when it last fell. They are zero
	// while it does not fall.
	first, last time.Time
}

// observe records the used amount, and returns the amount to expect. This is the largest recent amount
// until the amount has not fallen for settleDelay. After maxHeld, observe returns the recorded amount even
// if it keeps falling.
func (f *fallingUsage) observe(used corev1.ResourceList, now time.Time) corev1.ResourceList {
	fell := tenancy.Lacks(used, f.used)
	switch {
	case fell && f.last.IsZero():
		f.first, f.last, f.most = now, now, f.used
	case fell:
		f.last = now
	}
	f.used = used
	if f.last.IsZero() || now.Sub(f.last) >= settleDelay || now.Sub(f.first) >= maxHeld {
		f.first, f.last, f.most = time.Time{}, time.Time{}, nil
		return used
	}
	f.most = largest(f.most, used)
	return f.most
}

// wrote is a wish that the queue wrote, and the time of the write.
type wrote struct {
	hard corev1.ResourceList
	at   time.Time
}

// join adds a waiting request and returns true, or returns false if there are too many.
func (l *requestQueue) join(w *waitingRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiters) >= maxWaiting {
		return false
	}
	l.waiters = append(l.waiters, w)
	l.looked = time.Time{}
	return true
}

// leave removes a waiting request, and reports whether it was the last one and its wish remains.
func (l *requestQueue) leave(w *waitingRequest) (wish bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = slices.DeleteFunc(l.waiters, func(other *waitingRequest) bool { return other == w })
	return len(l.waiters) == 0 && len(l.written) > 0
}

// look returns the state of a waiting request, or an error if it cannot read or write the parts. It checks
// all waiting requests and writes their wishes, unless another goroutine has just done so.
func (l *requestQueue) look(ctx context.Context, h *Handler, w *waitingRequest) (waitState, error) {
	l.mu.Lock()
	now := time.Now()
	if w.verdict != waits || now.Sub(l.looked) < tick/2 {
		defer l.mu.Unlock()
		return w.verdict, nil
	}
	l.looked = now
	l.mu.Unlock()
	if err := l.check(ctx, h, now); err != nil {
		return waits, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.verdict, nil
}

// check checks all waiting requests, and writes or withdraws their wishes.
func (l *requestQueue) check(ctx context.Context, h *Handler, now time.Time) error {
	l.mu.Lock()
	wishes, err := l.lookAll(ctx, h, now)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	for _, wish := range wishes {
		if err := h.Client.Patch(ctx, wish.object, wish.patch, client.FieldOwner(fieldOwner)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot ask for a part of the tenant's quota: %w", err)
		}
	}
	return nil
}

// wish is a patch of a part's annotation.
type wish struct {
	object *corev1.ResourceQuota
	patch  client.Patch
}

// lookAll sets the state of each waiting request, and returns the wishes to write.
func (l *requestQueue) lookAll(ctx context.Context, h *Handler, now time.Time) ([]wish, error) {
	parts, err := h.parts(ctx, l.namespace)
	if err != nil {
		return nil, err
	}
	var states []*state
	for i := range parts {
		states = append(states, l.state(ctx, h, &parts[i], now))
	}
	for _, w := range l.waiters {
		if w.verdict != waits {
			continue
		}
		if err := l.judge(w, states, now); err != nil {
			return nil, err
		}
	}
	var wishes []wish
	for _, s := range states {
		wish, err := l.wish(h, s, now)
		if err != nil {
			return nil, err
		}
		if wish != nil {
			wishes = append(wishes, *wish)
		}
	}
	return wishes, nil
}

// state is the state of a part during one check of the waiting requests.
type state struct {
	part *corev1.ResourceQuota
	// onTheWay is set if the quota does not count all passed requests yet.
	onTheWay bool
	// left is the free amount of the part, less the needs of the waiting requests checked so far and of
	// requests that have waited longer at other replicas. level is the size that the part needs for them
	// and for the requests that the quota does not count yet.
	left, level corev1.ResourceList
	// settled is left without the amount that was freed recently.
	settled corev1.ResourceList
	// held is set if the part is about to change. blocked is set if a waiting request needs more than the
	// free amount of the part, and since is the arrival time of the oldest such request.
	held, blocked bool
	since         time.Time
	// total returns the quota of the tenant. It reads the quota at the first call only, because most checks
	// do not need it.
	total func() (*total, error)
}

func (l *requestQueue) state(ctx context.Context, h *Handler, part *corev1.ResourceQuota, now time.Time) *state {
	on, ok := l.sent[part.Name]
	if !ok {
		on = &passedRequests{}
		l.sent[part.Name] = on
	}
	onTheWay := on.observe(part.Status.Used, now)
	fall, ok := l.falls[part.Name]
	if !ok {
		fall = &fallingUsage{}
		l.falls[part.Name] = fall
	}
	freed := positive(subtract(fall.observe(part.Status.Used, now), part.Status.Used))
	others, _ := tenancy.ReadQuotaRequests(part, now)
	delete(others, tenancy.WishKey(h.Replica))
	changes := part.Annotations[tenancy.AnnotationMoving] != "" || len(others.Open(part.Spec.Hard)) > 0 || !equality.Semantic.DeepEqual(part.Spec.Hard, part.Status.Hard)
	since, known := l.held[part.Name]
	switch {
	case !changes:
		delete(l.held, part.Name)
	case !known:
		since = now
		l.held[part.Name] = now
	}
	left := subtract(rest(part), onTheWay)
	for _, earlier := range others.Open(part.Status.Used) {
		if l.after(part.Name, earlier.Since) {
			left = subtract(left, earlier.Resources)
		}
	}
	return &state{
		part: part, onTheWay: len(onTheWay) > 0, left: left, settled: subtract(left, freed), level: add(part.Status.Used, onTheWay),
		held:  changes && now.Sub(since) < maxHeld,
		total: sync.OnceValues(func() (*total, error) { return h.total(ctx, part) }),
	}
}

// after reports whether all waiting requests for a part arrived after a time.
func (l *requestQueue) after(part string, since time.Time) bool {
	return !slices.ContainsFunc(l.waiters, func(w *waitingRequest) bool {
		_, needs := w.needs[part]
		return needs && w.verdict == waits && !w.since.After(since)
	})
}

// short returns two results. short is true if the tenant's free quota does not suffice for a request after
// the requests before it. full is true if the free quota does not suffice even without them.
func (s *state) short(need corev1.ResourceList) (short, full bool, err error) {
	total, err := s.total()
	if err != nil || total == nil {
		return false, false, err
	}
	left, taken := total.rest(), subtract(s.level, s.part.Status.Used)
	need = only(need, total.limit) // the part can still limit what the Tenant limits no longer
	return tenancy.Lacks(subtract(left, only(taken, total.limit)), need), tenancy.Lacks(left, need), nil
}

// need returns what a waiting request needs of the resources that the part limits now, and whether it
// needed any of them when it arrived.
func (s *state) need(w *waitingRequest) (corev1.ResourceList, bool) {
	need, ok := w.needs[s.part.Name]
	return only(need, s.part.Spec.Hard), ok
}

// judge sets the state of a waiting request, and subtracts its needs from the remaining quota.
func (l *requestQueue) judge(w *waitingRequest, states []*state, now time.Time) error {
	blocked, held, short, full := false, false, false, false
	var of []*state
	for _, s := range states {
		if need, ok := s.need(w); ok {
			of = append(of, s)
			blocked = blocked || s.blocked || tenancy.Lacks(s.left, need)
			held = held || s.held || tenancy.Lacks(s.settled, need)
		}
	}
	for _, s := range of {
		if !blocked || !w.sure {
			break
		}
		need, _ := s.need(w)
		lacks, without, err := s.short(need)
		if err != nil {
			return err
		}
		short, full = short || lacks, full || without
	}
	switch {
	case !full:
		w.short = time.Time{}
	case w.short.IsZero():
		w.short = now
	case now.Sub(w.short) >= grace:
		w.verdict = refused
	}
	if short {
		// The request may still fit, if a request before it fails.
		return nil
	}
	goes := !blocked && !held
	if goes {
		w.verdict = fits
	}
	if goes && w.dryRun {
		l.keepUntil = now.Add(kept)
		return nil // a dry run uses no quota
	}
	for _, s := range of {
		need, _ := s.need(w)
		s.left, s.settled, s.level = subtract(s.left, need), subtract(s.settled, need), add(s.level, need)
		switch {
		case goes:
			l.sent[s.part.Name].add(need, now)
		case blocked:
			// Later requests wait as well, even if they would fit.
			s.blocked = true
			if s.since.IsZero() {
				s.since = w.since
			}
		}
	}
	return nil
}

// wish returns the patch that writes or withdraws the wish of the waiting requests for a part, or nil.
func (l *requestQueue) wish(h *Handler, s *state, now time.Time) (*wish, error) {
	before, asked := l.written[s.part.Name]
	switch {
	case !s.blocked && (!asked || s.onTheWay || now.Before(l.keepUntil)):
		return nil, nil
	case !s.blocked:
		delete(l.written, s.part.Name)
		return h.patch(s.part, nil, now)
	}
	level := only(s.level, s.part.Spec.Hard)
	same := equality.Semantic.DeepEqual(before.hard, level) && now.Sub(before.at) < renewal
	if !tenancy.Lacks(s.part.Spec.Hard, level) || now.Sub(s.since) < gather || same {
		return nil, nil
	}
	l.written[s.part.Name] = wrote{hard: level, at: now}
	return h.patch(s.part, &tenancy.QuotaRequest{At: now, Since: s.since, Hard: level}, now)
}

// patch returns a patch that sets or removes the replica's wish, and removes expired wishes.
func (h *Handler) patch(part *corev1.ResourceQuota, wanted *tenancy.QuotaRequest, now time.Time) (*wish, error) {
	annotations := map[string]*string{}
	_, ended := tenancy.ReadQuotaRequests(part, now)
	for _, key := range ended {
		annotations[key] = nil
	}
	annotations[tenancy.WishKey(h.Replica)] = nil
	if wanted != nil {
		value, err := json.Marshal(wanted)
		if err != nil {
			return nil, fmt.Errorf("cannot write what waits for a quota: %w", err)
		}
		annotations[tenancy.WishKey(h.Replica)] = new(string(value))
	}
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return nil, fmt.Errorf("cannot write what waits for a quota: %w", err)
	}
	return &wish{
		object: &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: part.Namespace, Name: part.Name}},
		patch:  client.RawPatch(types.MergePatchType, content),
	}, nil
}

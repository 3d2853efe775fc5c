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
	// gather is how long the first request waits for others before the lane writes their
	// wishes: a Deployment creates several Pods at once.
	gather = 10 * time.Millisecond
	// renewal is the interval at which the lane renews its wishes.
	renewal = time.Second
	// maxHeld is the maximum time that a request waits only because a part is about to
	// change: the manager that changes it may have stopped.
	maxHeld = 2 * time.Second
	// settleDelay is how long the used amount must not fall before a request may use what
	// became free. Kubernetes recounts a quota for each deleted object, and a recount
	// misses objects that are admitted but not stored yet: what passes between two
	// recounts would be admitted twice.
	settleDelay = 300 * time.Millisecond
	// fieldOwner is the field manager of the wishes.
	fieldOwner = "tenure-webhook"
)

// waitState is the state of a waiter.
type waitState int

const (
	// waits means that the namespace does not have enough.
	waits waitState = iota
	// fits means that the namespace has enough.
	fits
	// refused means that the tenant does not have enough.
	refused
)

// waitingRequest is a request that waits.
type waitingRequest struct {
	// needs are the resources that the request needs, by the name of the part.
	needs map[string]corev1.ResourceList
	// sure is set if the parts certainly count the request.
	sure bool
	// dryRun is set if the API server will not count the request.
	dryRun bool
	// since is the time when the request arrived, and short the time when the tenant's free quota
	// became too small for it.
	since, short time.Time
	verdict      waitState
}

// requestQueue lets the requests in a namespace through in the order of their arrival, except
// requests for which the tenant does not have enough.
type requestQueue struct {
	namespace string

	mu      sync.Mutex
	waiters []*waitingRequest
	// looked is when the lane last checked all waiters.
	looked time.Time
	// sent are the requests that passed but that the quota does not count yet, and
	// written the last wish, by the name of the part.
	sent    map[string]*passedRequests
	written map[string]wrote
	// keepUntil is until when the lane withdraws no wish, for the last dry run.
	keepUntil time.Time
	// held is when the lane first saw that a part is about to change.
	held map[string]time.Time
	// falls are the used amounts that fell a moment ago, by the name of the part.
	falls map[string]*fallingUsage
}

// fallingUsage is a used amount that may fall further.
type fallingUsage struct {
	// used is the used amount at the last call of see, and most the largest since the
	// amount began to fall.
	used, most corev1.ResourceList
	// first is when the amount began to fall, and last when it fell again. They are zero
	// while it does not fall.
	first, last time.Time
}

// observe records the used amount, and returns the amount to expect: the largest one, until
// the amount has not fallen for the time settle. An amount that keeps falling is believed
// after the time maxHeld.
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

// wrote is a wish that the lane wrote, and the time.
type wrote struct {
	hard corev1.ResourceList
	at   time.Time
}

// join adds a waiter and returns true, or returns false if there are too many.
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

// leave removes a waiter, and reports whether it was the last one and left a wish behind.
func (l *requestQueue) leave(w *waitingRequest) (wish bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = slices.DeleteFunc(l.waiters, func(other *waitingRequest) bool { return other == w })
	return len(l.waiters) == 0 && len(l.written) > 0
}

// look returns the verdict on a waiter. It checks all waiters, unless another goroutine
// has just done so, and writes their wishes.
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

// check checks all waiters, and writes or withdraws their wishes.
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

// wish is a patch to write to a part.
type wish struct {
	object *corev1.ResourceQuota
	patch  client.Patch
}

// lookAll sets the verdict of each waiter, and returns the wishes to write.
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

// state is the state of a part during one check of the waiters.
type state struct {
	part *corev1.ResourceQuota
	// onTheWay is set if requests passed that the quota does not count yet.
	onTheWay bool
	// left is what is free in the part, less the needs of the waiters checked so far and
	// of requests that have waited at other replicas for longer than these, and level the
	// size that the part needs for them and for the requests that the quota
	// does not count yet.
	left, level corev1.ResourceList
	// settled is like left, but without what became free a moment ago.
	settled corev1.ResourceList
	// held is set if the part is about to change, and blocked if a waiter needs more than
	// the part has; since is when the oldest such waiter arrived.
	held, blocked bool
	since         time.Time
	// total returns the quota of the tenant. It reads the quota on the first call only,
	// as most checks do not need it.
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

// after reports whether all waiters for a part arrived after a time.
func (l *requestQueue) after(part string, since time.Time) bool {
	return !slices.ContainsFunc(l.waiters, func(w *waitingRequest) bool {
		_, needs := w.needs[part]
		return needs && w.verdict == waits && !w.since.After(since)
	})
}

// short is true if the tenant has less left than a waiter needs, after the waiters before
// it, and full if it has less even without them.
func (s *state) short(need corev1.ResourceList) (short, full bool, err error) {
	total, err := s.total()
	if err != nil || total == nil {
		return false, false, err
	}
	left, taken := total.rest(), subtract(s.level, s.part.Status.Used)
	return tenancy.Lacks(subtract(left, only(taken, total.limit)), need), tenancy.Lacks(left, need), nil
}

// judge sets the verdict of a waiting request, and subtracts its needs from the remaining quota.
func (l *requestQueue) judge(w *waitingRequest, states []*state, now time.Time) error {
	blocked, held, short, full := false, false, false, false
	var of []*state
	for _, s := range states {
		if need, ok := w.needs[s.part.Name]; ok {
			of = append(of, s)
			blocked = blocked || s.blocked || tenancy.Lacks(s.left, need)
			held = held || s.held || tenancy.Lacks(s.settled, need)
		}
	}
	for _, s := range of {
		if !blocked || !w.sure {
			break
		}
		lacks, without, err := s.short(w.needs[s.part.Name])
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
		// The waiter may still fit, if a request before it fails.
		return nil
	}
	goes := !blocked && !held
	if goes {
		w.verdict = fits
	}
	if goes && w.dryRun {
		l.keepUntil = now.Add(kept)
		return nil // it uses nothing
	}
	for _, s := range of {
		need := w.needs[s.part.Name]
		s.left, s.settled, s.level = subtract(s.left, need), subtract(s.settled, need), add(s.level, need)
		switch {
		case goes:
			l.sent[s.part.Name].add(need, now)
		case blocked:
			// Later waiters wait as well, even if they would fit.
			s.blocked = true
			if s.since.IsZero() {
				s.since = w.since
			}
		}
	}
	return nil
}

// wish returns the patch for a part's annotation, or nil: the needs of the waiting requests, or
// their removal.
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

// patch returns a patch that sets or removes the replica's wish, and removes wishes that
// do not count any more.
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

package divided

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
	// settle is how long the used amount must not fall before a request may use what
	// became free. Kubernetes recounts a quota for each deleted object, and a recount
	// misses objects that are admitted but not stored yet: what passes between two
	// recounts would be admitted twice.
	settle = 300 * time.Millisecond
	// fieldOwner is the field manager of the wishes.
	fieldOwner = "tenure-webhook"
)

// verdict is the state of a waiter.
type verdict int

const (
	// waits means that the namespace does not have enough.
	waits verdict = iota
	// fits means that the namespace has enough.
	fits
	// refused means that the tenant does not have enough.
	refused
)

// waiter is a request that waits.
type waiter struct {
	// needs are the resources that the request needs, by the name of the part.
	needs map[string]corev1.ResourceList
	// sure is set if the parts certainly count the request.
	sure bool
	// since is when the request arrived, and short when the tenant began to lack what it
	// needs.
	since, short time.Time
	verdict      verdict
}

// lane lets the requests in a namespace through in the order of their arrival, except
// requests for which the tenant does not have enough.
type lane struct {
	namespace string

	mu      sync.Mutex
	waiters []*waiter
	// looked is when the lane last checked all waiters.
	looked time.Time
	// sent are the requests that passed but that the quota does not count yet, and
	// written the last wish, by the name of the part.
	sent    map[string]*sent
	written map[string]wrote
	// held is when the lane first saw that a part is about to change.
	held map[string]time.Time
	// falls are the used amounts that fell a moment ago, by the name of the part.
	falls map[string]*falling
}

// falling is a used amount that may fall further.
type falling struct {
	// used is the used amount at the last call of see, and most the largest since the
	// amount began to fall.
	used, most corev1.ResourceList
	// first is when the amount began to fall, and last when it fell again. They are zero
	// while it does not fall.
	first, last time.Time
}

// see records the used amount, and returns the amount to expect: the largest one, until
// the amount has not fallen for the time settle. An amount that keeps falling is believed
// after the time maxHeld.
func (f *falling) see(used corev1.ResourceList, now time.Time) corev1.ResourceList {
	fell := tenancy.Lacks(used, f.used)
	switch {
	case fell && f.last.IsZero():
		f.first, f.last, f.most = now, now, f.used
	case fell:
		f.last = now
	}
	f.used = used
	if f.last.IsZero() || now.Sub(f.last) >= settle || now.Sub(f.first) >= maxHeld {
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
func (l *lane) join(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiters) >= maxWaiting {
		return false
	}
	l.waiters = append(l.waiters, w)
	l.looked = time.Time{}
	return true
}

func (l *lane) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = slices.DeleteFunc(l.waiters, func(other *waiter) bool { return other == w })
}

// look returns the verdict on a waiter. It checks all waiters, unless another goroutine
// has just done so, and writes their wishes.
func (l *lane) look(ctx context.Context, h *Handler, w *waiter) (verdict, error) {
	l.mu.Lock()
	now := time.Now()
	if w.verdict != waits || now.Sub(l.looked) < tick/2 {
		defer l.mu.Unlock()
		return w.verdict, nil
	}
	l.looked = now
	wishes, err := l.lookAll(ctx, h, now)
	l.mu.Unlock()
	if err != nil {
		return waits, err
	}
	for _, wish := range wishes {
		if err := h.Client.Patch(ctx, wish.object, wish.patch, client.FieldOwner(fieldOwner)); client.IgnoreNotFound(err) != nil {
			return waits, fmt.Errorf("cannot ask for a part of the tenant's quota: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.verdict, nil
}

// wish is a patch to write to a part.
type wish struct {
	object *corev1.ResourceQuota
	patch  client.Patch
}

// lookAll sets the verdict of each waiter, and returns the wishes to write.
func (l *lane) lookAll(ctx context.Context, h *Handler, now time.Time) ([]wish, error) {
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
	// left is what is free in the part, less the needs of the waiters checked so far, and
	// level the size that the part needs for them and for the requests that the quota
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

func (l *lane) state(ctx context.Context, h *Handler, part *corev1.ResourceQuota, now time.Time) *state {
	on, ok := l.sent[part.Name]
	if !ok {
		on = &sent{}
		l.sent[part.Name] = on
	}
	onTheWay := on.see(part.Status.Used, now)
	fall, ok := l.falls[part.Name]
	if !ok {
		fall = &falling{}
		l.falls[part.Name] = fall
	}
	freed := positive(subtract(fall.see(part.Status.Used, now), part.Status.Used))
	others := tenancy.ReadWishes(part, now)
	delete(others, h.Replica)
	open, _ := others.Open(part.Spec.Hard)
	changes := part.Annotations[tenancy.AnnotationMoving] != "" || len(open) > 0 || !equality.Semantic.DeepEqual(part.Spec.Hard, part.Status.Hard)
	since, known := l.held[part.Name]
	switch {
	case !changes:
		delete(l.held, part.Name)
	case !known:
		since = now
		l.held[part.Name] = now
	}
	left := subtract(rest(part), onTheWay)
	return &state{
		part: part, left: left, settled: subtract(left, freed), level: add(part.Status.Used, onTheWay),
		held:  changes && now.Sub(since) < maxHeld,
		total: sync.OnceValues(func() (*total, error) { return h.total(ctx, part) }),
	}
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

// judge sets the verdict of a waiter, and subtracts what it needs from what is left.
func (l *lane) judge(w *waiter, states []*state, now time.Time) error {
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
	if goes {
		w.verdict = fits
	}
	return nil
}

// wish returns the patch to write to a part, or nil: what the waiters need, or that they
// no longer need anything.
func (l *lane) wish(h *Handler, s *state, now time.Time) (*wish, error) {
	before, asked := l.written[s.part.Name]
	if !s.blocked {
		delete(l.written, s.part.Name)
		if !asked {
			return nil, nil
		}
		return patch(s.part, tenancy.ReadWishes(s.part, now).Without(h.Replica))
	}
	level := only(s.level, s.part.Spec.Hard)
	same := equality.Semantic.DeepEqual(before.hard, level) && now.Sub(before.at) < renewal
	if !tenancy.Lacks(s.part.Spec.Hard, level) || now.Sub(s.since) < gather || same {
		return nil, nil
	}
	l.written[s.part.Name] = wrote{hard: level, at: now}
	return patch(s.part, tenancy.ReadWishes(s.part, now).With(h.Replica, tenancy.Wish{At: now, Since: s.since, Hard: level}))
}

// patch returns a patch that sets the wishes of a part, or removes the annotation if
// there are none.
func patch(part *corev1.ResourceQuota, wishes tenancy.Wishes) (*wish, error) {
	var value *string
	if len(wishes) > 0 {
		content, err := json.Marshal(wishes)
		if err != nil {
			return nil, fmt.Errorf("cannot write what waits for a quota: %w", err)
		}
		value = new(string(content))
	}
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{tenancy.AnnotationWanted: value}}})
	if err != nil {
		return nil, fmt.Errorf("cannot write what waits for a quota: %w", err)
	}
	return &wish{
		object: &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: part.Namespace, Name: part.Name}},
		patch:  client.RawPatch(types.MergePatchType, content),
	}, nil
}

package tenancy

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Share is the part of a tenant's quota that one namespace has.
type Share struct {
	// Namespace is the name of the namespace.
	Namespace string
	// Exists reports that the ResourceQuota exists. Leaving reports that the namespace is
	// being deleted: it gets no more quota, and its part counts until the namespace is gone.
	Exists, Leaving bool
	// Hard is spec.hard of the ResourceQuota, Enforced status.hard, and Used
	// status.used.
	Hard, Enforced, Used corev1.ResourceList
	// Wanted are the needs of waiting requests in the namespace beyond Used, for each
	// replica of the webhook.
	Wanted []Wanted
}

// DistributeQuota divides a quota among the namespaces of a tenant. It returns the new spec.hard
// of each namespace that is not being deleted, and the resources whose usage already
// exceeds the limit.
//
// A namespace may use the larger of its quota's spec and the value that Kubernetes
// enforces, since the second follows the first a moment later. DistributeQuota never raises the
// sum of these above the limit: it first lowers one namespace's quota, and raises
// another's once the status of the first confirms the lower value. So call DistributeQuota again
// when a status changes; until then it returns the same result.
//
// DistributeQuota serves waiting requests first, those that waited longest before the others: their
// namespace gets what it lacks, if the tenant has it, from the namespaces with the most
// free. Without waiting requests, each namespace gets what it
// uses and an equal part of the rest. DistributeQuota keeps a division while each namespace has at
// least half of its part, or, unless rebalance is set, what it uses: otherwise every Pod
// would move all quotas. If fewer units are free than there are namespaces, some
// namespaces get nothing beyond what they use.
func DistributeQuota(limit corev1.ResourceList, shares []Share, rebalance bool) (hard map[string]corev1.ResourceList, over []corev1.ResourceName) {
	shares = slices.Clone(shares)
	slices.SortFunc(shares, func(a, b Share) int { return strings.Compare(a.Namespace, b.Namespace) })
	hard = map[string]corev1.ResourceList{}
	for _, s := range shares {
		if !s.Leaving {
			hard[s.Namespace] = corev1.ResourceList{}
		}
	}
	for name, bound := range limit {
		e := newDistribution(name, bound, shares)
		e.rebalance = rebalance
		if e.divide() {
			over = append(over, name)
		}
		for i, s := range shares {
			if !s.Leaving {
				hard[s.Namespace][name] = e.quantity(i, s.Hard[name], bound)
			}
		}
	}
	slices.Sort(over)
	return hard, over
}

// distribution divides one resource, counted in units.
type distribution struct {
	name corev1.ResourceName
	// coarse is the number of Kubernetes units, or thousandths of them, in one unit of the
	// distribution. Limits are rounded down to units; used and enforced amounts are rounded
	// up.
	coarse int64
	limit  int64
	parts  []part
	// rebalance allows a new division only because the parts are unequal.
	rebalance bool
}

// part is a namespace's part of the resource, in units.
type part struct {
	exists, leaving            bool
	hard, enforced, used, next int64
	// wants are the needs of the waiting requests, and wanted is their sum.
	wants  []want
	wanted int64
	// served is the namespace's usage plus the needs of the requests that serve has served.
	served int64
}

// want is an amount that requests have waited for since a time.
type want struct {
	amount int64
	since  time.Time
}

// needed returns the namespace's usage plus the needs of its waiting requests.
func (p part) needed() int64 { return p.used + p.wanted }

// largest returns the largest of the namespace's limits and its usage.
func (p part) largest() int64 { return max(p.hard, p.enforced, p.used) }

func newDistribution(name corev1.ResourceName, bound resource.Quantity, shares []Share) *distribution {
	e := &distribution{name: name, coarse: 1, parts: make([]part, len(shares))}
	for e.limit = e.units(bound, false); e.limit >= maxUnits; e.limit = e.units(bound, false) {
		e.coarse *= 1024
	}
	for i, s := range shares {
		hard, bounded := s.Hard[name]
		e.parts[i] = part{
			exists: s.Exists && bounded, leaving: s.Leaving,
			hard: e.units(hard, true), enforced: e.units(s.Enforced[name], true), used: e.units(s.Used[name], true),
		}
		for _, w := range s.Wanted {
			amount := e.units(w.Resources[name], true)
			e.parts[i].wanted = min(e.parts[i].wanted+amount, maxUnits)
			e.parts[i].wants = append(e.parts[i].wants, want{amount, w.Since})
		}
	}
	return e
}

// fine reports whether the resource is counted in thousandths, as processors are.
func (e *distribution) fine() bool { return strings.HasSuffix(string(e.name), "cpu") }

// maxUnits keeps sums of many parts within 64 bits. A limit is less, so that a part that
// is cut to it is above every limit.
const maxUnits = int64(1) << 46

func (e *distribution) units(q resource.Quantity, up bool) int64 {
	value := e.value(q)
	if !e.fine() && !up && q.CmpInt64(value) < 0 {
		value-- // it is rounded up
	}
	value = max(value, 0)
	if up && value%e.coarse > 0 {
		return min(value/e.coarse+1, maxUnits)
	}
	return min(value/e.coarse, maxUnits)
}

// value returns an amount in units of Kubernetes, or thousandths of them, rounded up. It returns
// the largest 64-bit amount for one that does not fit into 64 bits, for which Quantity returns 0 or
// any number.
func (e *distribution) value(q resource.Quantity) int64 {
	switch {
	case e.fine() && q.CmpInt64(math.MaxInt64/1000) > 0, q.CmpInt64(math.MaxInt64) > 0:
		return math.MaxInt64
	case e.fine():
		return q.MilliValue()
	default:
		return q.Value()
	}
}

// quantity returns the new size of a part, in the format of the limit. A part that does not
// change is not rounded up to whole units, because the rest may belong to other parts.
func (e *distribution) quantity(i int, hard, like resource.Quantity) resource.Quantity {
	p := e.parts[i]
	if e.coarse > 1 && p.exists && p.next == p.hard {
		return hard
	}
	if e.fine() {
		return *resource.NewMilliQuantity(p.next*e.coarse, resource.DecimalSI)
	}
	format := like.Format
	if format == "" {
		format = resource.DecimalSI
	}
	return *resource.NewQuantity(p.next*e.coarse, format)
}

// divide computes the new size of each part, and reports whether the usage exceeds the limit.
func (e *distribution) divide() (over bool) {
	room, used, wanted, count := e.limit, int64(0), int64(0), int64(0)
	for _, p := range e.parts {
		if p.leaving {
			room -= p.largest()
			continue
		}
		used += p.used
		wanted += p.wanted
		count++
	}
	room = max(room, 0)
	switch {
	case count == 0:
		return false
	case used > room:
		e.shrink(room, used)
	case e.fair(room, used, count):
		for i := range e.parts {
			e.parts[i].next = e.parts[i].hard
		}
		return false
	case e.lacking(room):
		e.serve(room)
	default:
		e.share(room-used, wanted, count)
	}
	e.step()
	return used > room
}

// shrink gives each namespace the same fraction of its usage.
func (e *distribution) shrink(room, used int64) {
	for i := range e.parts {
		p := &e.parts[i]
		if !p.leaving {
			next := new(big.Int).Mul(big.NewInt(p.used), big.NewInt(room))
			p.next = next.Quo(next, big.NewInt(used)).Int64()
		}
	}
}

// fair reports whether the parts can stay unchanged.
func (e *distribution) fair(room, used, count int64) bool {
	sum, part := int64(0), (room-used)/count
	for _, p := range e.parts {
		if p.leaving {
			continue
		}
		sum += p.hard
		if !p.exists || p.hard < p.needed() || e.rebalance && 2*(p.hard-p.used) < part {
			return false
		}
	}
	return sum <= room
}

// lacking reports whether waiting requests need more than a namespace has, while the
// other parts can stay unchanged.
func (e *distribution) lacking(room int64) bool {
	sum, lacking := int64(0), false
	for _, p := range e.parts {
		if p.leaving {
			continue
		}
		sum += max(p.hard, p.used)
		lacking = lacking || p.wanted > 0 && p.hard < p.needed()
	}
	return lacking && sum <= room
}

// serve gives namespaces what their waiting requests lack, the longest waiting first. It
// first gives what is in no part. Then the other namespaces give half of what they have
// free, those with the most first, and all of it if half is not enough. Requests that lack
// more than all of this get nothing, so that they do not take what serves others.
func (e *distribution) serve(room int64) {
	type waiting struct {
		*part
		want
	}
	var order []waiting
	var donors []*part
	for i := range e.parts {
		p := &e.parts[i]
		if p.leaving {
			continue
		}
		p.next, p.served = max(p.hard, p.used), p.used
		room -= p.next
		donors = append(donors, p)
		for _, w := range p.wants {
			order = append(order, waiting{p, w})
		}
	}
	slices.SortStableFunc(order, func(a, b waiting) int { return a.since.Compare(b.since) })
	for _, w := range order {
		p := w.part
		lacks := p.served + w.amount - p.next
		free := room
		for _, d := range donors {
			free += d.spare(p)
		}
		if free < lacks {
			continue
		}
		p.served += w.amount
		if lacks <= 0 {
			continue
		}
		p.next += lacks
		given := min(lacks, room)
		room, lacks = room-given, lacks-given
		slices.SortStableFunc(donors, func(a, b *part) int { return cmp.Compare(b.spare(p), a.spare(p)) })
		for _, share := range []int64{2, 1} {
			for _, d := range donors {
				given := min(lacks, (d.spare(p)+share-1)/share)
				d.next, lacks = d.next-given, lacks-given
			}
		}
	}
}

// spare returns what a namespace can give to another one: what it neither uses nor needs
// for its own waiting requests. If it lacks enough for these, it gives all that it neither
// uses nor needs for those that serve has served.
func (p *part) spare(to *part) int64 {
	switch {
	case p == to:
		return 0
	case p.next < p.needed():
		return p.next - p.served
	}
	return p.next - p.needed()
}

// share gives each namespace what it uses and an equal part of what is free, in round
// numbers; the first namespaces get the remainder. Waiting requests get what they want
// before that, if there is enough for all of them.
func (e *distribution) share(free, wanted, count int64) {
	serves := wanted <= free
	if serves {
		free -= wanted
	}
	part := free / count
	grain := int64(1)
	if e.fine() && part >= 100 {
		grain = 10
	}
	if part >= 16<<20 {
		grain = 1 << 20
	}
	part -= part % grain
	rest := free - part*count
	for i := range e.parts {
		p := &e.parts[i]
		if p.leaving {
			continue
		}
		extra := min(rest, grain)
		if grain > 1 {
			extra = rest
		}
		rest -= extra
		p.next = p.used + part + extra
		if serves {
			p.next += p.wanted
		}
	}
}

// step changes each part towards the division as far as is safe now. It lowers parts at once. It
// raises parts only by what others have already given up, because a part that is lowered now may
// never be written.
func (e *distribution) step() {
	reserved := int64(0)
	for _, p := range e.parts {
		reserved += p.largest()
	}
	for i := range e.parts {
		p := &e.parts[i]
		if p.leaving || p.next <= p.largest() {
			continue
		}
		base := p.largest()
		p.next = max(p.hard, min(p.next, base+max(e.limit-reserved, 0)))
		reserved += max(p.next, base) - base
	}
}

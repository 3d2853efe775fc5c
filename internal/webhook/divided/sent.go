package divided

import (
	"time"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
)

// onTheWay is how long it takes, at most, until the API server counts a request that was
// let through. One that is not counted by then was refused by something else.
const onTheWay = time.Second

// sent is what was let through and is not in what is used yet. The zero value is nothing.
type sent struct {
	// used is what was used when it was looked at last, and counted what was counted
	// since and belongs to none of the entries.
	used, counted corev1.ResourceList
	entries       []entry
}

// entry is a request that was let through.
type entry struct {
	what corev1.ResourceList
	at   time.Time
}

func (s *sent) add(what corev1.ResourceList, now time.Time) {
	s.entries = append(s.entries, entry{what, now})
}

// see notes what is used now, and returns what will be added to it. Requests are taken to
// be counted in the order in which they were let through.
func (s *sent) see(used corev1.ResourceList, now time.Time) corev1.ResourceList {
	if len(s.entries) == 0 {
		s.used, s.counted = used, nil
		return nil
	}
	s.counted = positive(add(s.counted, positive(subtract(used, s.used))))
	s.used = used
	for len(s.entries) > 0 {
		first := s.entries[0]
		switch {
		case !tenancy.Lacks(s.counted, first.what):
			s.counted = subtract(s.counted, first.what)
		case now.Sub(first.at) < onTheWay:
			var sum corev1.ResourceList
			for _, e := range s.entries {
				sum = add(sum, e.what)
			}
			return sum
		}
		s.entries = s.entries[1:]
	}
	s.counted = nil
	return nil
}

// rest is what is free in a part.
func rest(part *corev1.ResourceQuota) corev1.ResourceList {
	enforced := corev1.ResourceList{}
	for name, quantity := range part.Spec.Hard {
		if is, ok := part.Status.Hard[name]; !ok || is.Cmp(quantity) < 0 {
			quantity = is
		}
		enforced[name] = quantity
	}
	return subtract(enforced, part.Status.Used)
}

// add returns the sum of two lists.
func add(a, b corev1.ResourceList) corev1.ResourceList {
	sum := a.DeepCopy()
	if sum == nil {
		sum = corev1.ResourceList{}
	}
	for name, quantity := range b {
		is := sum[name]
		is.Add(quantity)
		sum[name] = is
	}
	return sum
}

// subtract returns a less b, which may be negative.
func subtract(a, b corev1.ResourceList) corev1.ResourceList {
	left := a.DeepCopy()
	if left == nil {
		left = corev1.ResourceList{}
	}
	for name, quantity := range b {
		is := left[name]
		is.Sub(quantity)
		left[name] = is
	}
	return left
}

// positive returns what is more than nothing.
func positive(a corev1.ResourceList) corev1.ResourceList {
	for name, quantity := range a {
		if quantity.Sign() <= 0 {
			delete(a, name)
		}
	}
	return a
}

// only returns what of a list another one has as well.
func only(a, names corev1.ResourceList) corev1.ResourceList {
	left := corev1.ResourceList{}
	for name := range names {
		if quantity, ok := a[name]; ok {
			left[name] = quantity
		}
	}
	return left
}

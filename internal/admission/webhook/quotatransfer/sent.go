package quotatransfer

import (
	"time"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
)

// maxCountDelay is the maximum time until the API server counts a request that passed. If it does not count
// a request by then, it has denied the request for another reason.
const maxCountDelay = time.Second

// passedRequests are the requests that passed but that the used amount does not include yet. The zero value
// is ready to use.
type passedRequests struct {
	// used is the used amount at the last call of observe. counted is the amount that the API server has
	// counted since and that matches no entry.
	used, counted corev1.ResourceList
	entries       []entry
}

// entry is a request that passed.
type entry struct {
	what corev1.ResourceList
	at   time.Time
}

func (s *passedRequests) add(what corev1.ResourceList, now time.Time) {
	s.entries = append(s.entries, entry{what, now})
}

// observe records the used amount, and returns the amount that the pending requests will add. It assumes
// that the API server counts requests in the order in which they passed.
func (s *passedRequests) observe(used corev1.ResourceList, now time.Time) corev1.ResourceList {
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
		case now.Sub(first.at) < maxCountDelay:
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

// rest returns the free amount of a part.
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

// largest returns the larger amount of each resource.
func largest(a, b corev1.ResourceList) corev1.ResourceList {
	result := a.DeepCopy()
	for name, quantity := range b {
		if is, ok := result[name]; !ok || is.Cmp(quantity) < 0 {
			result[name] = quantity
		}
	}
	return result
}

// positive returns the amounts that are greater than zero.
func positive(a corev1.ResourceList) corev1.ResourceList {
	for name, quantity := range a {
		if quantity.Sign() <= 0 {
			delete(a, name)
		}
	}
	return a
}

// only returns the entries of a with a name that the other list also contains.
func only(a, names corev1.ResourceList) corev1.ResourceList {
	left := corev1.ResourceList{}
	for name := range names {
		if quantity, ok := a[name]; ok {
			left[name] = quantity
		}
	}
	return left
}

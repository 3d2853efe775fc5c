package tenancy

import (
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// wishLifetime is how long a wish counts if the replica does not renew it. The clocks of
// replicas must agree within this time.
const wishLifetime = 5 * time.Second

// Wish is the size that a namespace's part of a quota needs for the requests that wait at
// one replica of the webhook.
type Wish struct {
	// At is when the replica wrote the wish, and Since when the oldest request began to
	// wait.
	At    time.Time `json:"at"`
	Since time.Time `json:"since"`
	// Hard is the size that the part needs.
	Hard corev1.ResourceList `json:"hard"`
}

// Wishes are the wishes about a part, by replica.
type Wishes map[string]Wish

// ReadWishes returns the wishes about a part that still count. It ignores an annotation
// that it cannot parse.
func ReadWishes(q *corev1.ResourceQuota, now time.Time) Wishes {
	var all Wishes
	if value := q.Annotations[AnnotationWanted]; value == "" || json.Unmarshal([]byte(value), &all) != nil {
		return nil
	}
	maps.DeleteFunc(all, func(_ string, w Wish) bool {
		age := now.Sub(w.At)
		return age > wishLifetime || age < -wishLifetime
	})
	return all
}

// With returns the wishes with the last wish of one replica replaced.
func (w Wishes) With(replica string, wish Wish) Wishes {
	all := w.Without(replica)
	all[replica] = wish
	return all
}

// Without returns the wishes of the other replicas.
func (w Wishes) Without(replica string) Wishes {
	all := Wishes{}
	maps.Copy(all, w)
	delete(all, replica)
	return all
}

// Open returns the sum of the wishes beyond the used amount, and since when the oldest
// request waits.
func (w Wishes) Open(used corev1.ResourceList) (wanted corev1.ResourceList, since time.Time) {
	for _, wish := range w {
		for name, level := range wish.Hard {
			level.Sub(used[name])
			if level.Sign() <= 0 {
				continue
			}
			if wanted == nil {
				wanted = corev1.ResourceList{}
			}
			sum := wanted[name]
			sum.Add(level)
			wanted[name] = sum
			if since.IsZero() || wish.Since.Before(since) {
				since = wish.Since
			}
		}
	}
	return wanted, since
}

// Lacks reports whether have is less than need for any resource.
func Lacks(have, need corev1.ResourceList) bool {
	for name, quantity := range need {
		if is := have[name]; is.Cmp(quantity) < 0 {
			return true
		}
	}
	return false
}

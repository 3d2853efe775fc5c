package tenancy

import (
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// wishLifetime is for how long a wish counts that is not renewed. Clocks of replicas have
// to agree within this time.
const wishLifetime = 5 * time.Second

// Wish is what a namespace's part of a quota has to be for the requests that wait at one
// replica of the webhook.
type Wish struct {
	// At is when it was written, and Since when the oldest request began to wait.
	At    time.Time `json:"at"`
	Since time.Time `json:"since"`
	// Hard is how large the part has to be.
	Hard corev1.ResourceList `json:"hard"`
}

// Wishes are the wishes about a part, by replica.
type Wishes map[string]Wish

// ReadWishes returns the wishes about a part that still count. What cannot be read is
// nothing.
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

// With returns the wishes with that of one replica in the place of its last one.
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

// Open returns what is wanted beyond what is used, and since when.
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

// Lacks says whether a list has less of something than another one.
func Lacks(have, need corev1.ResourceList) bool {
	for name, quantity := range need {
		if is := have[name]; is.Cmp(quantity) < 0 {
			return true
		}
	}
	return false
}

package tenancy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// quotaRequestLifetime is how long a wish counts if the replica does not renew it. The clocks of
// replicas must agree within this time.
const quotaRequestLifetime = 5 * time.Second

// QuotaRequest is the size that a namespace's part of a quota needs for the requests that wait at
// one replica of the webhook.
type QuotaRequest struct {
	// At is the time of the write, and Since the time at which the oldest request began to
	// wait.
	At    time.Time `json:"at"`
	Since time.Time `json:"since"`
	// Hard is the size that the part needs.
	Hard corev1.ResourceList `json:"hard"`
}

// QuotaRequests are the wishes about a part, by replica. Each replica writes an annotation of its
// own, so that replicas do not overwrite each other's wishes.
type QuotaRequests map[string]QuotaRequest

// WishKey returns the annotation with the wish of a replica.
func WishKey(replica string) string {
	const longest = 63
	if len(replica) > longest {
		// The end distinguishes the Pods of a Deployment.
		replica = strings.TrimLeft(replica[len(replica)-longest:], "-_.")
	}
	return AnnotationWanted + replica
}

// ReadQuotaRequests returns the wishes about a part that still count, by annotation, and the
// annotations that do not count or cannot be parsed.
func ReadQuotaRequests(q *corev1.ResourceQuota, now time.Time) (wishes QuotaRequests, ended []string) {
	for key, value := range q.Annotations {
		if !strings.HasPrefix(key, AnnotationWanted) {
			continue
		}
		var w QuotaRequest
		err := json.Unmarshal([]byte(value), &w)
		if age := now.Sub(w.At); err != nil || age > quotaRequestLifetime || age < -quotaRequestLifetime {
			ended = append(ended, key)
			continue
		}
		if wishes == nil {
			wishes = QuotaRequests{}
		}
		wishes[key] = w
	}
	return wishes, ended
}

// Wanted holds the needs of the waiting requests at one replica, beyond the used amount.
type Wanted struct {
	// Since is the time at which the oldest request began to wait.
	Since time.Time
	// Resources are the needed amounts.
	Resources corev1.ResourceList
}

// Open returns what the wishes need beyond the used amount, the oldest first.
func (w QuotaRequests) Open(used corev1.ResourceList) []Wanted {
	var all []Wanted
	for _, key := range slices.Sorted(maps.Keys(w)) {
		needs := corev1.ResourceList{}
		for name, level := range w[key].Hard {
			if level.Sub(used[name]); level.Sign() > 0 {
				needs[name] = level
			}
		}
		if len(needs) > 0 {
			all = append(all, Wanted{Since: w[key].Since, Resources: needs})
		}
	}
	slices.SortStableFunc(all, func(a, b Wanted) int { return a.Since.Compare(b.Since) })
	return all
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

package tenancy

import (
	"math"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

const (
	// Workers is how many Kustomizations kustomize-controller works on at a time
	// unless its flag --concurrent says otherwise.
	Workers = 4
	// shortestTimeout is what kustomize-controller makes of every shorter spec.timeout
	// (GetTimeout in the API of kustomize-controller 1.9).
	shortestTimeout = 30 * time.Second
)

// MaxQueueDelay returns how much longer than on a quiet cluster a tenant's Kustomization waits
// for one of so many workers, at most, while a namespace of others is as full as the
// bounds let it be, of Kustomizations that wait as long as they may. The queue serves
// who came first, and an object is in it once, beside being worked on: so what the
// workers are at is waited for, and then each of the objects once. A second such
// namespace adds to the latter alone. Workers below one count as [Workers]; what is
// longer than a Duration holds is the longest Duration.
//
// It does not count the work itself, nor the sources' wait, for which the same holds
// with source-controller's own workers.
func MaxQueueDelay(b v1alpha1.Bounds, workers int) time.Duration {
	if workers < 1 {
		workers = Workers
	}
	objects, held := time.Duration(b.MaxObjects), max(b.MaxTimeout.Duration, shortestTimeout)
	switch {
	case objects < 1:
		return 0
	case held > math.MaxInt64/(objects+1):
		return math.MaxInt64
	}
	return objects*held/time.Duration(workers) + held
}

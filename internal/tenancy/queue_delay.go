package tenancy

import (
	"math"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

const (
	// Workers is the number of Kustomizations that kustomize-controller reconciles at a time unless
	// its flag --concurrent sets another number.
	Workers = 4
	// shortestTimeout is the timeout that kustomize-controller uses for every shorter
	// spec.timeout (GetTimeout in the API of kustomize-controller 1.9).
	shortestTimeout = 30 * time.Second
)

// MaxQueueDelay returns the maximum time that a tenant's Kustomization waits for a worker while
// another namespace holds as many Kustomizations as the bounds allow, each of which occupies a
// worker until its maximum timeout. The queue is first in, first out, and contains an object at
// most once in addition to its running reconciliation. So the Kustomization waits for the running
// reconciliations and then for each queued object once. A second such namespace adds only to the
// queued objects. Fewer than one worker count as [Workers]. The result is at most the longest
// Duration.
//
// It does not include the work itself, nor the wait of the sources, which depends on
// source-controller's workers in the same way.
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

// Package backoff limits how often the manager's controllers retry an object that fails.
package backoff

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// first is the delay of the first retry. Each retry doubles it.
	first = 5 * time.Millisecond
	// Max is the longest delay. The delay grows to about the time for which an object has failed, and by default to 17
	// minutes: after the API server was away for some minutes, nothing would happen for as long again.
	Max = time.Minute
)

// RateLimiter returns the rate limiter of a controller.
func RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, Max)
}

const (
	// firstConflict is the delay after the first conflict: the cache gets the new version of the object meanwhile.
	firstConflict = 100 * time.Millisecond
	// MaxConflict is the longest delay after a conflict.
	MaxConflict = 10 * time.Second
)

// Conflicts returns the delays after conflicts with another client. A conflict is not an error, and usually ends at
// once. A cache that is far behind, or a webhook that answers with a conflict, would otherwise cost ten requests a second
// for each object. The zero value is ready to use. Conflicts is safe for concurrent use.
type Conflicts struct {
	once    sync.Once
	limiter workqueue.TypedRateLimiter[reconcile.Request]
}

// After returns the delay after a conflict. It doubles with each consecutive conflict of the request.
func (c *Conflicts) After(request reconcile.Request) time.Duration { return c.of().When(request) }

// Forget ends the consecutive conflicts of a request.
func (c *Conflicts) Forget(request reconcile.Request) { c.of().Forget(request) }

func (c *Conflicts) of() workqueue.TypedRateLimiter[reconcile.Request] {
	c.once.Do(func() {
		c.limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstConflict, MaxConflict)
	})
	return c.limiter
}

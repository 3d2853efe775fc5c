// Package backoff limits how often the manager's controllers retry an object that fails.
package backoff

import (
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

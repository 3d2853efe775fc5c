// Package budget limits the bytes that the proxy buffers: for one request, for all requests
// of one user, and in total. Merged lists, bodies of reviews, single objects and the state
// of filtered watches share one [Budget].
package budget

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RetryAfter is the time in seconds after which a client may retry a request that exceeded
// a limit.
const RetryAfter = 2

// Limits are in bytes: One for one request, Each for one user and All for all requests.
//
// A request that buffers more than Small reserves One bytes at once: if several requests
// grow large together, the first one completes. Without the reservation, none might
// complete.
type Limits struct{ Small, One, Each, All int64 }

// Default returns the limits of the proxy. While the proxy reads a list, the list takes up
// to 2.3 times its buffered size, because the proxy copies the answer into its parts. The
// container in config/proxy has 1 GiB of memory.
func Default() Limits { return Limits{Small: 4 << 20, One: 48 << 20, Each: 64 << 20, All: 128 << 20} }

// Budget counts the bytes that requests buffer or have reserved. It may be used from many
// goroutines.
type Budget struct {
	limits Limits

	mu    sync.Mutex
	taken int64
	by    map[string]int64
}

// New returns a Budget without reservations.
func New(limits Limits) *Budget { return &Budget{limits: limits, by: map[string]int64{}} }

// Taken returns the number of bytes that all requests have reserved.
func (b *Budget) Taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// Reservation holds the bytes that one request has reserved in a Budget. It may be used
// from many goroutines.
type Reservation struct {
	budget  *Budget
	flowKey string
	exact   bool // reserves only the bytes that are buffered
	// buffered is the number of bytes in memory, and size the number of reserved bytes.
	// budget.mu guards both.
	buffered, size int64
}

// Open returns an empty Reservation for a request. flowKey is the quota key of the user.
// Close the Reservation after use.
func (b *Budget) Open(flowKey string) *Reservation { return &Reservation{budget: b, flowKey: flowKey} }

// OpenExact returns a Reservation that never reserves more than the maximum that it
// buffered. It suits a watch, which may stay open for long.
func (b *Budget) OpenExact(flowKey string) *Reservation {
	return &Reservation{budget: b, flowKey: flowKey, exact: true}
}

// Take adds n bytes to the buffered bytes, or subtracts them if n is negative, and reserves
// more bytes if needed. Reserved bytes stay reserved until Close, and are used first. The
// error is a *[FullError]: 413 if the request would exceed its limit, and 429 if the user
// or all requests together would. Take does not wait: requests that each hold a part would
// wait for each other.
func (r *Reservation) Take(n int64) error {
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	r.buffered += n
	more := r.buffered - r.size
	if more <= 0 {
		return nil
	}
	if r.buffered > b.limits.Small && !r.exact {
		more = b.limits.One - r.size
	}
	switch {
	case r.buffered > b.limits.One:
		return failure(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the answer is larger than %d bytes: list with a limit, or one namespace at a time", b.limits.One))
	case b.by[r.flowKey]+more > b.limits.Each:
		return failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "your requests are too large to be answered at once, try again later")
	case b.taken+more > b.limits.All:
		return failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "the proxy has too many large requests, try again later")
	}
	r.size += more
	b.taken += more
	b.by[r.flowKey] += more
	return nil
}

// Close returns all reserved bytes to the Budget.
func (r *Reservation) Close() {
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.size == 0 {
		return // the flowKey may have no entry
	}
	b.taken -= r.size
	if b.by[r.flowKey] -= r.size; b.by[r.flowKey] <= 0 {
		delete(b.by, r.flowKey)
	}
	r.buffered, r.size = 0, 0
}

// Reader returns a reader that takes the bytes that it reads, and fails if
// [Reservation.Take] fails.
func (r *Reservation) Reader(from io.Reader) io.Reader { return reader{from, r} }

type reader struct {
	io.Reader
	reservation *Reservation
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if full := r.reservation.Take(int64(n)); full != nil {
		return n, full
	}
	return n, err
}

// FullError reports that a limit is exceeded, in the form of an API server error.
type FullError struct{ *apierrors.StatusError }

// Unwrap returns the *errors.StatusError.
func (e *FullError) Unwrap() error { return e.StatusError }

func failure(code int32, reason metav1.StatusReason, message string) *FullError {
	status := metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
	if code == http.StatusTooManyRequests {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: RetryAfter}
	}
	return &FullError{&apierrors.StatusError{ErrStatus: status}}
}

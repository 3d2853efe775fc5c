// Package budget bounds the bytes that the proxy buffers: of one request, of all
// requests of one payer, and in all. Lists that are joined, bodies of reviews, single
// objects and what a filtered watch remembers share one [Budget].
package budget

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RetryAfter is when a request that was refused for want of room may be sent again, in
// seconds.
const RetryAfter = 2

// Limits are in bytes.
//
// A request that buffers more than Small has room for One from then on: of several that
// become large at once the first is answered, instead of none.
type Limits struct{ Small, One, Each, All int64 }

// Default are the limits of the proxy. A list takes up to 2.3 times what is buffered while
// it is read, since an answer is copied into its parts: config/proxy has 1 GiB for
// everything.
func Default() Limits { return Limits{Small: 4 << 20, One: 48 << 20, Each: 64 << 20, All: 128 << 20} }

// Budget counts the bytes that are buffered, or for which there is to be room. It may be
// used from many goroutines.
type Budget struct {
	limits Limits

	mu    sync.Mutex
	taken int64
	by    map[string]int64
}

// New makes a budget of which nothing is taken.
func New(limits Limits) *Budget { return &Budget{limits: limits, by: map[string]int64{}} }

// Taken returns the bytes that all have taken.
func (b *Budget) Taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// Room is what one request has of a budget. It may be used from many goroutines.
type Room struct {
	budget *Budget
	payer  string
	exact  bool // it never has more room than it uses
	// buffered and size are guarded by budget.mu: what is buffered, and the room for it.
	buffered, size int64
}

// Open returns the room of a request that a payer pays for: none yet. Close it.
func (b *Budget) Open(payer string) *Room { return &Room{budget: b, payer: payer} }

// OpenExact returns a room that is never larger than what is buffered at most: for a
// watch, which may stay open for long.
func (b *Budget) OpenExact(payer string) *Room { return &Room{budget: b, payer: payer, exact: true} }

// Take takes room for some more bytes, or for fewer: what was taken stays taken until the
// room is closed, and is used first. The error says why there is none, as a
// *[FullError]: 413 if one request would have too much, and 429 if all of the payer
// or all together would. Take does not wait: requests that have a part each would wait for
// each other.
func (r *Room) Take(n int64) error {
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
			fmt.Sprintf("the answer is larger than %d bytes: ask for a list with a limit, or in one namespace at a time", b.limits.One))
	case b.by[r.payer]+more > b.limits.Each:
		return failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "your requests are too large to be answered at once, try again later")
	case b.taken+more > b.limits.All:
		return failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "the proxy has too many large requests, try again later")
	}
	r.size += more
	b.taken += more
	b.by[r.payer] += more
	return nil
}

// Close gives everything back.
func (r *Room) Close() {
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.size == 0 {
		return // the payer may not be there
	}
	b.taken -= r.size
	if b.by[r.payer] -= r.size; b.by[r.payer] <= 0 {
		delete(b.by, r.payer)
	}
	r.buffered, r.size = 0, 0
}

// Reader returns a reader that takes room for what is read, and fails without.
func (r *Room) Reader(from io.Reader) io.Reader { return reader{from, r} }

type reader struct {
	io.Reader
	room *Room
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if full := r.room.Take(int64(n)); full != nil {
		return n, full
	}
	return n, err
}

// FullError says that there is no room, in the words of the API server.
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

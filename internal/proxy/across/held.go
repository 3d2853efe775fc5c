package across

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How many bytes of answers are held at once: by one list, by those of one payer, and by
// all. A list takes up to 2.3 times that while it is read, since an answer is copied into
// its parts: config/proxy has 512 MiB for everything.
//
// A list of more than maxSmall has room for the largest from then on: of several that
// become large at once the first is answered, instead of none.
const maxSmall, maxList, maxHeldEach, maxHeld = 4 << 20, 48 << 20, 64 << 20, 128 << 20

// retryAfter is when a list that was refused for want of room may be asked for again, in
// seconds.
const retryAfter = "2"

// bounds are in bytes.
type bounds struct{ small, list, each, all int64 }

// held counts the bytes of answers that are held, or for which there is to be room.
type held struct {
	bounds bounds // the zero value are those of this file

	mu    sync.Mutex
	taken int64
	by    map[string]int64
}

// holding is what one list holds. It may be used from many goroutines.
type holding struct {
	held  *held
	payer string
	// read and size are guarded by held.mu: what has been read, and the room for it.
	read, size int64
}

func (h *held) open(payer string) *holding { return &holding{held: h, payer: payer} }

// take takes room for some more bytes, or says why there is none. It does not wait: lists
// that have a part each would wait for each other.
func (l *holding) take(n int64) error {
	h := l.held
	h.mu.Lock()
	defer h.mu.Unlock()
	most := cmp.Or(h.bounds, bounds{maxSmall, maxList, maxHeldEach, maxHeld})
	l.read += n
	more := l.read - l.size
	if l.read > most.small {
		more = most.list - l.size
	}
	switch {
	case l.read > most.list:
		return statusError(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the list is larger than %d bytes: ask with a limit, or in one namespace at a time", most.list))
	case h.by[l.payer]+more > most.each:
		return statusError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "your lists across namespaces are too large to be answered at once, try again later")
	case h.taken+more > most.all:
		return statusError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "the proxy has too many large lists, try again later")
	}
	if h.by == nil {
		h.by = map[string]int64{}
	}
	l.size += more
	h.taken += more
	h.by[l.payer] += more
	return nil
}

// close gives everything back.
func (l *holding) close() {
	h := l.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.size == 0 {
		return // the payer may not be there
	}
	h.taken -= l.size
	if h.by[l.payer] -= l.size; h.by[l.payer] <= 0 {
		delete(h.by, l.payer)
	}
	l.size = 0
}

// holdingReader takes room for what is read.
type holdingReader struct {
	io.Reader
	by *holding
}

// Read implements io.Reader.
func (r holdingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if full := r.by.take(int64(n)); full != nil {
		return n, full
	}
	return n, err
}

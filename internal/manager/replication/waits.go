package replication

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// pendingSources stores which missing objects each declaration waits for, and since when, so that
// the requeue delay grows for an object that is never created. A restart of the manager resets
// the delays.
type pendingSources struct {
	mu  sync.Mutex
	all map[string]pendingSource
}

// pendingSource is the state of one declaration.
type pendingSource struct {
	// what is a hash of the names of the missing objects.
	what  [sha256.Size]byte
	began time.Time
}

// next returns the requeue delay for the declaration of a field manager, or zero if it
// expects no objects. The delay is [requeueDelay] at first and then the time since the wait began, up
// to [resync]. The wait begins again when the set of expected objects changes.
func (w *pendingSources) next(manager string, waiting map[string]bool, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(waiting) == 0 {
		delete(w.all, manager)
		return 0
	}
	what := sha256.Sum256([]byte(strings.Join(slices.Sorted(maps.Keys(waiting)), "\n")))
	if have, ok := w.all[manager]; ok && have.what == what {
		return min(max(now.Sub(have.began), requeueDelay), resync)
	}
	if w.all == nil {
		w.all = map[string]pendingSource{}
	}
	w.all[manager] = pendingSource{what: what, began: now}
	return requeueDelay
}

// forget drops the state of a deleted declaration.
func (w *pendingSources) forget(manager string) { w.next(manager, nil, time.Time{}) }

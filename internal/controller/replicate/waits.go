package replicate

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// waits remembers for what declarations wait, and since when. What never comes must not
// let all their objects be read every moment. It is lost with the manager, which then
// looks soon.
type waits struct {
	mu  sync.Mutex
	all map[string]wait
}

// wait is that of one declaration.
type wait struct {
	// what is a hash.
	what  [sha256.Size]byte
	began time.Time
}

// next returns when to look again for what the declaration of a field manager waits
// for; zero if that is nothing. It is [soon] at first, and as long again as it lasts
// already, up to [resync]. It begins anew when something has come, or is waited for
// that was not.
func (w *waits) next(manager string, waiting map[string]bool, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(waiting) == 0 {
		delete(w.all, manager)
		return 0
	}
	what := sha256.Sum256([]byte(strings.Join(slices.Sorted(maps.Keys(waiting)), "\n")))
	if have, ok := w.all[manager]; ok && have.what == what {
		return min(max(now.Sub(have.began), soon), resync)
	}
	if w.all == nil {
		w.all = map[string]wait{}
	}
	w.all[manager] = wait{what: what, began: now}
	return soon
}

// forget leaves out a declaration that is gone.
func (w *waits) forget(manager string) { w.next(manager, nil, time.Time{}) }

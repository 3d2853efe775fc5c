package githost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleDelay is the time from the last event of a burst, such as a checkout, to the
// snapshot. settleMax limits the delay of a snapshot during a burst.
const (
	settleDelay = 100 * time.Millisecond
	settleMax   = 250 * time.Millisecond
)

// rootInterval is the interval of checks for vanished folders. The removal of a
// mapped folder or of a folder above it does not always cause an event. A check is
// one stat for each folder.
const rootInterval = 500 * time.Millisecond

// Folders without events are scanned at this interval, or less often if a scan takes
// long: scans use less than a tenth of the time.
const (
	scanInterval = 500 * time.Millisecond
	scanShare    = 10
)

// ErrWatchLimit reports that the system refuses to watch so many folders. The folder
// is scanned at intervals instead.
var ErrWatchLimit = errors.New("the system's limit of watched folders is reached")

// Watch follows the mapped folders, also those added later. It calls notify for each branch
// that moves, by an edit, a push or [Host.Commit], and for each folder that it cannot follow.
// Calls are sequential, and follow the save of a file after a few tenths of a second. Watch
// blocks until ctx ends, then it returns nil. Only one Watch may run at a time. It returns an
// error at once if another Watch runs.
func (h *Host) Watch(ctx context.Context, notify func(Change)) error {
	signal, ok := h.feed.open()
	if !ok {
		return errors.New("cannot watch the mapped folders: they are being watched already")
	}
	defer h.feed.close()
	w := &watcher{host: h, notify: notify, watched: map[*source]*watched{}}
	defer w.close()
	roots := time.NewTicker(rootInterval)
	defer roots.Stop()
	w.arrange(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signal:
			w.arrange(ctx)
			w.deliver()
		case event := <-w.events():
			w.event(event)
		case err := <-w.errors():
			w.overflow(err)
		case <-w.due():
			w.refresh(ctx)
		case <-roots.C:
			w.checkRoots()
		}
	}
}

// watcher is the state of one Watch. Only the goroutine of Watch accesses it.
type watcher struct {
	host    *Host
	notify  func(Change)
	fs      *fsnotify.Watcher // nil if the system provides no watcher
	watched map[*source]*watched
	timer   *time.Timer
}

// events returns the channel of events. Without a watcher it returns nil, which
// never receives.
func (w *watcher) events() <-chan fsnotify.Event {
	if w.fs == nil {
		return nil
	}
	return w.fs.Events
}

func (w *watcher) errors() <-chan error {
	if w.fs == nil {
		return nil
	}
	return w.fs.Errors
}

func (w *watcher) close() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.fs == nil {
		return
	}
	if err := w.fs.Close(); err != nil {
		w.host.log.Warn("cannot end watching", "error", err)
	}
}

// arrange adds the sources that were added since the last call.
func (w *watcher) arrange(ctx context.Context) {
	w.host.mu.RLock()
	repositories := make([]*repository, 0, len(w.host.repositories))
	for _, r := range w.host.repositories {
		repositories = append(repositories, r)
	}
	w.host.mu.RUnlock()
	for _, r := range repositories {
		r.mu.Lock()
		sources := r.sources
		r.mu.Unlock()
		for _, s := range sources {
			if w.watched[s] != nil {
				continue
			}
			// The first refresh finds changes since Add.
			w.watched[s] = &watched{repository: r, source: s, stale: true}
			w.mark(w.watched[s], 0)
		}
	}
	w.refresh(ctx)
}

// mark schedules a refresh of a source after a pause.
func (w *watcher) mark(x *watched, pause time.Duration) {
	now := time.Now()
	if x.first.IsZero() {
		x.first = now
	}
	x.due = now.Add(pause)
	if latest := x.first.Add(max(pause, settleMax)); x.due.After(latest) {
		x.due = latest
	}
	w.plan()
}

// plan sets the timer to the earliest scheduled refresh.
func (w *watcher) plan() {
	var earliest time.Time
	for _, x := range w.watched {
		if !x.due.IsZero() && (earliest.IsZero() || x.due.Before(earliest)) {
			earliest = x.due
		}
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = nil
	if !earliest.IsZero() {
		w.timer = time.NewTimer(time.Until(earliest))
	}
}

func (w *watcher) due() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C
}

func (w *watcher) event(event fsnotify.Event) {
	for _, x := range w.watched {
		if x.concerns(event) {
			w.mark(x, settleDelay)
		}
	}
}

// overflow handles lost events: it schedules a refresh of all sources.
func (w *watcher) overflow(err error) {
	w.host.log.Warn("events of mapped folders were lost", "error", err)
	for _, x := range w.watched {
		x.stale = true
		w.mark(x, settleDelay)
	}
}

// checkRoots schedules a refresh of folders that appeared, vanished or were
// replaced.
func (w *watcher) checkRoots() {
	for _, x := range w.watched {
		if x.rootChanged() {
			x.stale = true
			w.mark(x, 0)
		}
	}
}

// refresh refreshes the sources that are due.
func (w *watcher) refresh(ctx context.Context) {
	now := time.Now()
	for _, x := range w.watched {
		if x.due.IsZero() || x.due.After(now) {
			continue
		}
		x.due, x.first = time.Time{}, time.Time{}
		w.refreshOne(ctx, x)
		if ctx.Err() != nil {
			return
		}
	}
	w.plan()
}

// refreshOne refreshes a source. It updates stale watches before it reads the files,
// so that later changes cause events.
func (w *watcher) refreshOne(ctx context.Context, x *watched) {
	start := time.Now()
	if x.stale {
		if err := w.arm(ctx, x); errors.Is(err, ErrWatchLimit) {
			w.limited(x, err)
		}
	}
	changes, failing, err := w.look(ctx, x)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.host.log.Warn("cannot follow a mapped folder", "error", err)
	}
	// A vanished folder may have had no watch yet, and may come back as the same
	// folder.
	x.stale = x.stale || failing
	w.host.feed.send(changes...)
	w.deliver()
	if err := x.repository.keep(ctx, x.source); err != nil && ctx.Err() == nil {
		// The copy is only needed if the folder vanishes.
		w.host.log.Debug("cannot keep a copy of a mapped folder", "error", err)
	}
	if x.scanned || failing {
		w.mark(x, max(scanInterval, scanShare*time.Since(start)))
	}
}

// look refreshes a source and turns a new error, or its end, into a Change. It
// reports whether the refresh failed. It returns the error only if the last refresh
// did not return the same error.
func (w *watcher) look(ctx context.Context, x *watched) (_ []Change, failing bool, _ error) {
	r, s := x.repository, x.source
	r.mu.Lock()
	defer r.mu.Unlock()
	changes, err := r.refresh(ctx, s)
	said := s.said
	s.said = ""
	state := Change{URL: s.url, Branch: s.head, Revision: r.served[branchPrefix+s.head]}
	if err != nil {
		s.said = err.Error()
		if s.said == said {
			return nil, true, nil
		}
		state.Err = err
		return []Change{state}, true, err
	}
	if said != "" && len(changes) == 0 {
		changes = append(changes, state)
	}
	return changes, false, nil
}

// limited reports, once for each source, that the source is scanned.
func (w *watcher) limited(x *watched, err error) {
	if x.scanned {
		return
	}
	x.scanned = true
	r, s := x.repository, x.source
	r.mu.Lock()
	defer r.mu.Unlock()
	err = fmt.Errorf("cannot watch %s, its files are looked through every %s instead: %w", s.dir, scanInterval, err)
	w.host.log.Warn("a mapped folder is followed slowly", "error", err)
	w.host.feed.send(Change{URL: s.url, Branch: s.head, Revision: r.served[branchPrefix+s.head], Err: err})
}

func (w *watcher) deliver() {
	for _, c := range w.host.feed.take() {
		w.notify(c)
	}
}

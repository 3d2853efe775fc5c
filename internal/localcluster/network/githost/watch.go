package githost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
)

// From the last event of a burst, such as a checkout, to the snapshot; and the
// longest that a burst may put it off.
const (
	settleDelay = 100 * time.Millisecond
	settleMax   = 250 * time.Millisecond
)

// A mapped folder's own disappearance, or that of a folder above it, is not
// always an event. It is looked for this often; one stat each.
const rootInterval = 500 * time.Millisecond

// Where events are not to be had, the files are looked through this often, and
// never for more than a tenth of the time.
const (
	scanInterval = 500 * time.Millisecond
	scanShare    = 10
)

// ErrWatchLimit says that the system does not let us watch as many folders as
// there are. The folder is looked through at intervals instead.
var ErrWatchLimit = errors.New("the system's limit of watched folders is reached")

// Watch follows the mapped folders, those added later too, and calls notify for
// each branch that moves, by an edit, by a push or by [Host.Commit], and for each
// folder that cannot be followed. Calls come one after the other; Watch blocks
// until ctx ends, then it returns nil. From saving a file to the call it takes a
// few tenths of a second. Only one Watch may run at a time.
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

// watcher is the state of one Watch. Only its goroutine touches it.
type watcher struct {
	host    *Host
	notify  func(Change)
	fs      *fsnotify.Watcher // nil when the system gives us none
	watched map[*source]*watched
	timer   *time.Timer
}

// events returns nil, on which nothing ever arrives, without a watcher.
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

// arrange takes up the sources that were added since the last time.
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
			// What happened since Add is found by a first refresh.
			w.watched[s] = &watched{repository: r, source: s, stale: true}
			w.mark(w.watched[s], 0)
		}
	}
	w.refresh(ctx)
}

// mark plans a refresh of a source after a pause.
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

// plan sets the timer to the earliest refresh that is planned.
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

// overflow handles lost events: everything is looked at again.
func (w *watcher) overflow(err error) {
	w.host.log.Warn("events of mapped folders were lost", "error", err)
	for _, x := range w.watched {
		x.stale = true
		w.mark(x, settleDelay)
	}
}

// checkRoots plans a refresh for folders that came, went or were replaced.
func (w *watcher) checkRoots() {
	for _, x := range w.watched {
		if x.rootChanged() {
			x.stale = true
			w.mark(x, 0)
		}
	}
}

// refresh does what is due.
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

// refreshOne renews a source's watches, if they may be out of date, before it
// looks at the files: what changes in between is an event then.
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
	// A folder that is away may have had no watch yet, and come back as the same one.
	x.stale = x.stale || failing
	w.host.feed.send(changes...)
	w.deliver()
	if err := x.repository.keep(ctx, x.source); err != nil && ctx.Err() == nil {
		// Nothing is lost as long as the folder stays.
		w.host.log.Debug("cannot keep a copy of a mapped folder", "error", err)
	}
	if x.scanned || failing {
		w.mark(x, max(scanInterval, scanShare*time.Since(start)))
	}
}

// look refreshes a source and turns a new error, or its end, into a Change. It reports
// whether the refresh failed, and returns the error only if the last refresh did not
// return the same.
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

// limited reports, once for each source, that it is scanned.
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

package flux

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A watch that ended is begun again after a pause that doubles from the first
// to the second of these. The longest pause is also how late a kind whose CRD
// has just been installed can show up.
const (
	minPause = 100 * time.Millisecond
	maxPause = 2 * time.Second
)

// Watch calls handle with all selected rows, sorted, whenever one of them has
// changed, for the first time when every kind has been listed once. While
// handle runs, changes add up to one call: it sees every row's last state, not
// every state in between.
//
// Watch ends with the error that handle returns, with the context's cause, or
// when the server says that the user may not read a kind. It goes on when the
// server cannot be reached, closes the connection or restarts, and when a kind
// does not exist (yet, or any more): such a kind has no rows.
func Watch(ctx context.Context, c client.WithWatch, selection Selection, handle func([]Row) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watcher{
		client: c, selection: selection,
		rows:    map[Kind]map[types.NamespacedName]Row{},
		changed: make(chan struct{}, 1),
		pending: len(selection.kinds()),
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil) // runs before Wait, and ends the goroutines of the group
	for _, kind := range selection.kinds() {
		group.Go(func() {
			if err := w.follow(ctx, kind); err != nil {
				cancel(err)
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.changed:
		}
		if rows, ok := w.snapshot(); ok {
			if err := handle(rows); err != nil {
				return err
			}
		}
	}
}

type watcher struct {
	client    client.WithWatch
	selection Selection
	changed   chan struct{} // holds a token when rows changed since the last snapshot

	mu      sync.Mutex
	rows    map[Kind]map[types.NamespacedName]Row // a kind's key is there once it has been listed
	pending int                                   // kinds that have not been listed yet
}

// snapshot returns all rows; false until every kind has been listed.
func (w *watcher) snapshot() ([]Row, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending > 0 {
		return nil, false
	}
	var rows []Row
	for _, byName := range w.rows {
		for _, row := range byName {
			rows = append(rows, row)
		}
	}
	SortRows(rows)
	return rows, true
}

func (w *watcher) notify() {
	select {
	case w.changed <- struct{}{}:
	default: // a call is due already
	}
}

// replace takes the result of a list.
func (w *watcher) replace(kind Kind, rows []Row) {
	byName := map[types.NamespacedName]Row{}
	for _, row := range rows {
		byName[types.NamespacedName{Namespace: row.Namespace, Name: row.Name}] = row
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	old, listed := w.rows[kind]
	w.rows[kind] = byName
	same := listed && len(old) == len(byName)
	for name, row := range byName {
		same = same && old[name].Equal(row)
	}
	if !listed {
		w.pending--
	}
	if !same {
		w.notify()
	}
}

// update takes one object of a watch.
func (w *watcher) update(row Row, deleted bool) {
	name := types.NamespacedName{Namespace: row.Namespace, Name: row.Name}
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := w.rows[row.Kind]
	old, had := rows[name]
	switch {
	case deleted && had:
		delete(rows, name)
	case !deleted && (!had || !old.Equal(row)):
		rows[name] = row
	default:
		return
	}
	w.notify()
}

// follow lists and watches a kind until the context ends or the server
// forbids it.
func (w *watcher) follow(ctx context.Context, kind Kind) error {
	pause := minPause
	for ctx.Err() == nil {
		list, rows, err := listKind(ctx, w.client, kind, w.selection)
		switch {
		case err == nil:
			w.replace(kind, rows)
			if w.stream(ctx, list) {
				pause = minPause
			}
		case errors.Is(err, ErrNotInstalled):
			w.replace(kind, nil)
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		pause = min(2*pause, maxPause)
	}
	return nil
}

// stream follows the changes after a list until the API server ends the watch, and reports whether
// there were any. It ignores the reason for the end, because the next list reads the current state.
func (w *watcher) stream(ctx context.Context, list client.ObjectList) bool {
	opts := append(w.selection.options(), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
	})
	events, err := w.client.Watch(ctx, list, opts...)
	if err != nil {
		return false
	}
	defer events.Stop()
	got := false
	for {
		select {
		case <-ctx.Done():
			return got
		case event, ok := <-events.ResultChan():
			if !ok || event.Type == watch.Error {
				return got
			}
			got = true
			obj, ok := event.Object.(client.Object)
			if !ok || w.selection.Name != "" && obj.GetName() != w.selection.Name {
				continue
			}
			if row, ok := describe(obj); ok {
				w.update(row, event.Type == watch.Deleted)
			}
		}
	}
}

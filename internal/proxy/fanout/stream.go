package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
)

// start opens the stream of one namespace.
func (w *watcher) start(ctx context.Context, namespace, version string) {
	query := url.Values{}
	for name, values := range w.query {
		query[name] = slices.Clone(values)
	}
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true") // also for namespaces without events
	if query.Get("sendInitialEvents") == "true" {
		if w.started {
			// The namespace became visible later: its objects are ordinary events.
			query.Del("sendInitialEvents")
			query.Del("resourceVersionMatch")
			query.Del("resourceVersion")
		} else {
			w.initial[namespace] = true
		}
	} else {
		query.Del("resourceVersion")
		if version != "" {
			query.Set("resourceVersion", version)
		}
	}
	w.at[namespace] = version
	w.streams.Go(func() { w.stream(ctx, namespace, query) })
}

// stream reads the events of one namespace until the end.
func (w *watcher) stream(ctx context.Context, namespace string, query url.Values) {
	end := func(err error) {
		select {
		case w.events <- event{namespace: namespace, err: err}:
		case <-ctx.Done():
		}
	}
	response, err := w.open(ctx, namespace, query)
	if err != nil {
		end(err)
		return
	}
	defer func() { _ = response.Body.Close() }() // nothing is left to read
	// Send an event before the first frame, so that a watch without events is answered at
	// once.
	hello := event{namespace: namespace, contentType: response.Header.Get("Content-Type")}
	select {
	case w.events <- hello:
	case <-ctx.Done():
		return
	}
	decoder := NewDecoder(decodedReader{response.Body, w.memory})
	for {
		decoder.wait()
		if err := w.pass(ctx, namespace, decoder); err != nil {
			end(err)
			return
		}
	}
}

// pass reads the next event of a namespace and waits until the watcher has sent it to the caller.
func (w *watcher) pass(ctx context.Context, namespace string, decoder *Decoder) error {
	w.reading.Lock()
	defer w.reading.Unlock()
	defer w.memory.Close()
	next := event{namespace: namespace, handled: make(chan struct{})}
	var err error
	if next.frame, err = decoder.Next(); err != nil {
		return err
	}
	if err := json.Unmarshal(next.frame.Object, &next.head); err != nil {
		return fmt.Errorf("cannot read an event of namespace %s: %w", namespace, err)
	}
	select {
	case w.events <- next:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-next.handled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decodedReader is a reader that takes the memory of the events that are decoded from it, which
// is up to three times their size.
type decodedReader struct {
	io.Reader
	memory *budget.Reservation
}

// Read implements io.Reader.
func (r decodedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if full := r.memory.Take(3 * int64(n)); full != nil {
		return n, full
	}
	return n, err
}

// open starts the watch of a namespace. It retries a request that the API server answers
// with 403 for two seconds: the proxy may know a new right before the API server does.
func (w *watcher) open(ctx context.Context, namespace string, query url.Values) (*http.Response, error) {
	const attempts, pause = 20, 100 * time.Millisecond
	for attempt := 1; ; attempt++ {
		response, err := w.server.send(w.request.Context(), w.q, namespace, w.header, query)
		if err != nil || response.StatusCode == http.StatusOK {
			return response, err
		}
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxEvent)) // as much as can be read
		_ = response.Body.Close()                                      // it has been read
		if response.StatusCode != http.StatusForbidden || attempt == attempts {
			return nil, errorOf(response.StatusCode, body)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// limitedReader fails when one event is too large.
type limitedReader struct {
	reader io.Reader
	left   int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errors.New("an event is too large")
	}
	n, err := l.reader.Read(p)
	l.left -= n
	return n, err
}

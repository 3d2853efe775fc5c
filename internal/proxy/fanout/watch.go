package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one watch of a caller, joined from one watch for each namespace.
type watcher struct {
	server  *Server
	request *http.Request
	q       Request
	header  http.Header // of the requests to the API server, which share it
	query   url.Values
	events  chan event
	streams sync.WaitGroup
	// reading is held while an event is in memory: a watch of many namespaces holds one at a time.
	reading sync.Mutex
	memory  *budget.Reservation

	out     http.ResponseWriter
	started bool
	// at holds the last resource version of each namespace. sent is the last version that
	// the caller was sent.
	at   map[string]string
	sent string
	// trail holds the last points of the watch. The caller may not have received the last
	// events that were sent.
	trail []trailed
	// initial holds the namespaces whose initial objects have not all been sent, if the
	// caller asked for them as events.
	initial map[string]bool
}

// trailed is a point of a watch: the last version that was sent, and the resource version
// of each namespace at that time.
type trailed struct {
	version string
	at      map[string]string
}

// maxTrail is the maximum number of points in the trail of a watch, and maxTrailed the maximum
// number of namespaces in all of them.
const maxTrail, maxTrailed = 64, 640

// mark adds the current point to the trail.
func (w *watcher) mark() {
	if len(w.initial) > 0 {
		return
	}
	if kept := max(1, min(maxTrail, maxTrailed/max(1, len(w.at)))); len(w.trail) >= kept {
		w.trail = slices.Delete(w.trail, 0, len(w.trail)-kept+1)
	}
	w.trail = append(w.trail, trailed{w.sent, maps.Clone(w.at)})
}

// event is a message of a stream: its content type at the start, a frame, or its end.
type event struct {
	namespace   string
	contentType string
	frame       Frame
	head        head
	err         error // the end of the stream; io.EOF if it ended normally
	// handled is closed when the watcher has sent the frame to the caller.
	handled chan struct{}
}

// watch answers with the events of all visible namespaces. If a namespace becomes visible,
// it adds the objects of the namespace. If a namespace is no longer visible, the caller has
// to list again, because no event tells the caller which objects to drop. watch returns an
// error only if it has sent nothing.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q Request, accept string) error {
	query := r.URL.Query()
	namespaces, changed := q.Visible()
	at, err := s.positionsFor(q, query, namespaces)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	watching := &watcher{
		server: s, request: r.WithContext(ctx), q: q, header: passedOn(r.Header, accept), query: query, out: w,
		events: make(chan event), at: map[string]string{}, sent: query.Get("resourceVersion"), initial: map[string]bool{},
		memory: s.Memory.OpenExact(q.FlowKey),
	}
	defer watching.memory.Close()
	// No stream may outlive the request, whose headers it carries.
	defer watching.streams.Wait()
	defer cancel()
	for _, namespace := range namespaces {
		watching.start(ctx, namespace, at[namespace])
	}
	err = watching.run(ctx, namespaces, changed)
	for _, point := range watching.trail {
		s.positions.set(q.FlowKey, q.key(query, point.version), point.at)
	}
	return err
}

// positionsFor returns the resource version from which to watch each namespace. A namespace
// without a version begins with all existing objects.
func (s *Server) positionsFor(q Request, query url.Values, namespaces []string) (map[string]string, error) {
	if len(namespaces) == 0 {
		return nil, nowhere(q)
	}
	version := query.Get("resourceVersion")
	if version == "" || version == "0" || query.Get("sendInitialEvents") == "true" {
		return map[string]string{}, nil
	}
	if _, err := strconv.ParseUint(version, 10, 64); err != nil {
		return nil, statusError(http.StatusBadRequest, metav1.StatusReasonBadRequest, "resourceVersion is not a number")
	}
	at := s.positions.get(q.key(query, version))
	if at == nil {
		return nil, expired("too old resource version: " + version + " does not come from a list or watch of all namespaces that the proxy remembers: list again")
	}
	for namespace := range at {
		if !slices.Contains(namespaces, namespace) {
			return nil, expired("you may no longer see namespace " + namespace + ": list again")
		}
	}
	return maps.Clone(at), nil
}

// run passes events on until the watch ends. It returns an error only if it has sent
// nothing.
func (w *watcher) run(ctx context.Context, namespaces []string, changed <-chan struct{}) error {
	current := namespaces
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			var now []string
			now, changed = w.q.Visible()
			if err := w.follow(ctx, current, now); err != nil {
				return w.fail(err)
			}
			current = now
		case e := <-w.events:
			done, err := w.handle(e)
			if e.handled != nil {
				close(e.handled)
			}
			if done {
				return err
			}
		}
	}
}

// follow opens streams of namespaces that became visible. It returns an error if a
// namespace is no longer visible, which ends the watch.
func (w *watcher) follow(ctx context.Context, before, now []string) error {
	for _, namespace := range before {
		if !slices.Contains(now, namespace) {
			return expired("you may no longer see namespace " + namespace + ": list again")
		}
	}
	if w.q.Grow != nil && len(now) > len(before) && !w.q.Grow(len(now)) {
		return expired("you have too many watches for one more namespace: list again")
	}
	for _, namespace := range now {
		if !slices.Contains(before, namespace) {
			w.start(ctx, namespace, "")
		}
	}
	return nil
}

// handle passes one event on, and reports whether the watch has ended.
func (w *watcher) handle(e event) (done bool, err error) {
	switch {
	case e.err != nil:
		// The API server ends watches from time to time; the caller continues from the last
		// resource version.
		if !errors.Is(e.err, io.EOF) && !errors.Is(e.err, io.ErrUnexpectedEOF) {
			err = w.fail(e.err)
		}
		return true, err
	case e.frame.Type == "":
		return !w.begin(e.contentType), nil
	case e.frame.Type == watch.Error:
		w.write(e.frame)
		return true, nil
	}
	if version := e.head.version(); version != "" {
		w.at[e.namespace] = version
	}
	if e.frame.Type != watch.Bookmark {
		w.sent = w.at[e.namespace]
		w.mark()
		return !w.write(e.frame), nil
	}
	if e.head.initialEnd() {
		delete(w.initial, e.namespace)
	}
	return !w.bookmark(e), nil
}

// bookmark sends the caller the oldest of the namespaces' resource versions, if the caller
// asked for bookmarks and has not seen this version yet.
func (w *watcher) bookmark(e event) (ok bool) {
	if len(w.initial) > 0 {
		return true
	}
	least := ""
	for _, version := range w.at {
		if version == "" {
			return true
		}
		if least == "" || newer(least, version) {
			least = version
		}
	}
	asked := w.query.Get("allowWatchBookmarks")
	if on, err := strconv.ParseBool(asked); err != nil || !on || !e.head.initialEnd() && !newer(least, w.sent) {
		return true
	}
	object, err := WithVersion(e.frame.Object, least)
	if err != nil {
		return true
	}
	w.sent = least
	w.mark()
	return w.write(Frame{watch.Bookmark, object})
}

// begin sends the header of the answer, once.
func (w *watcher) begin(contentType string) (ok bool) {
	if w.started {
		return true
	}
	w.started = true
	if contentType == "" {
		contentType = "application/json"
	}
	w.out.Header().Set("Content-Type", contentType)
	w.out.Header().Set("Cache-Control", "no-cache, private")
	w.out.WriteHeader(http.StatusOK)
	return http.NewResponseController(w.out).Flush() == nil
}

func (w *watcher) write(f Frame) (ok bool) {
	if !w.begin("") {
		return false
	}
	text, err := json.Marshal(f)
	if err != nil {
		return false
	}
	if _, err := w.out.Write(append(text, '\n')); err != nil {
		return false
	}
	return http.NewResponseController(w.out).Flush() == nil
}

// fail tells the caller why the watch ends. It returns the error if nothing has been sent
// yet, and sends an event otherwise.
func (w *watcher) fail(err error) error {
	if !w.started {
		return err
	}
	status := statusError(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
	errors.As(err, &status)
	status.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	object, marshalErr := json.Marshal(status.ErrStatus)
	if marshalErr == nil {
		w.write(Frame{watch.Error, object})
	}
	return nil
}

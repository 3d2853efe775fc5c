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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one watch of a caller, joined of one for each namespace.
type watcher struct {
	server  *Server
	request *http.Request
	q       Question
	accept  string
	query   url.Values
	events  chan event
	streams sync.WaitGroup

	out     http.ResponseWriter
	started bool
	// at is how far each namespace is, and sent the last version that the
	// caller has seen.
	at   map[string]string
	sent string
	// trail are the last points that the caller may have come to: what was sent
	// last may not have arrived.
	trail []trailed
	// initial are the namespaces whose objects of the beginning have not all
	// been sent yet, when the caller asked for them as events.
	initial map[string]bool
}

// trailed is a point of a watch: what the caller saw last, and how far each
// namespace was then.
type trailed struct {
	version string
	at      map[string]string
}

// maxTrail bounds the trail of a watch.
const maxTrail = 64

// mark adds the point that has just been sent to the trail.
func (w *watcher) mark() {
	if len(w.initial) > 0 {
		return
	}
	if len(w.trail) == maxTrail {
		w.trail = slices.Delete(w.trail, 0, 1)
	}
	w.trail = append(w.trail, trailed{w.sent, maps.Clone(w.at)})
}

// event is what a stream has to say: a frame, or that it has ended.
type event struct {
	namespace   string
	contentType string
	frame       Frame
	head        head
	err         error // of a stream that ended; io.EOF if that is its normal end
}

var errLeft = errors.New("a namespace is not to be seen any more")

// watch answers with the events of all visible namespaces. When one more comes,
// its objects are added; when one goes, the caller has to list anew, since it
// cannot be told what it must forget. The error is for when nothing has been sent.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q Question, accept string) error {
	query := r.URL.Query()
	namespaces, changed := q.Visible()
	at, err := s.positionsFor(q, query, namespaces)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	watching := &watcher{
		server: s, request: r.WithContext(ctx), q: q, accept: accept, query: query, out: w,
		events: make(chan event), at: map[string]string{}, sent: query.Get("resourceVersion"), initial: map[string]bool{},
	}
	// No stream may outlive the request, whose headers it carries.
	defer watching.streams.Wait()
	defer cancel()
	for _, namespace := range namespaces {
		watching.start(ctx, namespace, at[namespace])
	}
	err = watching.run(ctx, namespaces, changed)
	for _, point := range watching.trail {
		s.positions.set(q.key(query, point.version), point.at)
	}
	return err
}

// positionsFor says where to begin in each namespace; "" is with all objects that
// there are.
func (s *Server) positionsFor(q Question, query url.Values, namespaces []string) (map[string]string, error) {
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
		return nil, expired("too old resource version: " + version + " is not one that a list or watch across namespaces ended with: list anew")
	}
	for namespace := range at {
		if !slices.Contains(namespaces, namespace) {
			return nil, expired("namespace " + namespace + " is not to be seen any more: list anew")
		}
	}
	return maps.Clone(at), nil
}

// run passes events on until the watch ends. The error is for when nothing has
// been sent.
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
			if done, err := w.handle(e); done {
				return err
			}
		}
	}
}

// follow opens streams of namespaces that came. One that went ends the watch.
func (w *watcher) follow(ctx context.Context, before, now []string) error {
	for _, namespace := range before {
		if !slices.Contains(now, namespace) {
			return expired(errLeft.Error() + ": " + namespace + ": list anew")
		}
	}
	for _, namespace := range now {
		if !slices.Contains(before, namespace) {
			w.start(ctx, namespace, "")
		}
	}
	return nil
}

// handle passes one event on, and says whether the watch is over.
func (w *watcher) handle(e event) (done bool, err error) {
	switch {
	case e.err != nil:
		// The API server ends watches from time to time; the caller goes on
		// where it was.
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

// bookmark tells the caller how far all namespaces are, if it wants to know and
// if it has not been told already.
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

// fail tells the caller why the watch ends: in the answer itself, by returning the
// error, if nothing has been sent yet, and in an event after that.
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

package proxy

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// recorder records the status and size of an answer, and limits the time that the client
// takes to read a part of it to writeTimeout.
type recorder struct {
	http.ResponseWriter
	// answer says how the request was answered, and reason why it was refused.
	answer, reason string
	code           int
	// begun is called before the header is sent, unless it is nil.
	begun func()
	// patience is writeTimeout, except in tests.
	patience time.Duration

	control  *http.ResponseController
	watchdog *time.Timer   // runs during a write
	barked   chan struct{} // receives a value after the watchdog has ended the answer
	id       string
}

func newRecorder(w http.ResponseWriter, patience time.Duration) *recorder {
	return &recorder{ResponseWriter: w, answer: "refused", patience: patience, control: http.NewResponseController(w)}
}

// auditID returns the ID of the request's audit events. It creates the ID at the first
// call, because most requests have no events.
func (r *recorder) auditID() string {
	if r.id == "" {
		r.id = string(uuid.NewUUID())
	}
	return r.id
}

// unbound removes the server's limit on the duration of the whole answer. The caller calls
// end after the last write, which limits the rest of the transmission again.
func (r *recorder) unbound() (end func()) {
	_ = r.control.SetWriteDeadline(time.Time{})
	return func() { _ = r.control.SetWriteDeadline(time.Now().Add(r.patience)) }
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	if r.code == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		r.code = code
		if r.begun != nil {
			r.begun()
		}
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	if r.code == 0 {
		r.WriteHeader(http.StatusOK)
	}
	r.watch()
	defer r.unwatch()
	return r.ResponseWriter.Write(b)
}

// FlushError flushes the answer for http.ResponseController.
func (r *recorder) FlushError() error {
	r.watch()
	defer r.unwatch()
	return r.control.Flush()
}

// watch starts a timer that ends the answer if unwatch is not called in time. A deadline
// for each write would be simpler, but over HTTP/2 it ends answers without a write for so
// long, and it takes a message between goroutines.
func (r *recorder) watch() {
	if r.watchdog != nil {
		r.watchdog.Reset(r.patience)
		return
	}
	r.barked = make(chan struct{}, 1)
	r.watchdog = time.AfterFunc(r.patience, func() {
		// A connection in a test may not support deadlines.
		_ = r.control.SetWriteDeadline(time.Unix(1, 0))
		r.barked <- struct{}{}
	})
}

// unwatch stops the timer. If the timer has fired, unwatch waits until the answer has
// ended, because the answer must not be used after its request.
func (r *recorder) unwatch() {
	if !r.watchdog.Stop() {
		<-r.barked
	}
}

// Unwrap returns the wrapped writer for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

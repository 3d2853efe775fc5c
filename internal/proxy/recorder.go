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
	// answer is how the request was answered, reason why it was refused.
	answer, reason string
	code           int
	// begun is called before the answer is, unless it is nil.
	begun func()
	// patience is writeTimeout, other than in tests.
	patience time.Duration

	control  *http.ResponseController
	watchdog *time.Timer   // runs while something is being written
	barked   chan struct{} // gets something after the watchdog has ended the answer
	id       string
}

func newRecorder(w http.ResponseWriter, patience time.Duration) *recorder {
	return &recorder{ResponseWriter: w, answer: "refused", patience: patience, control: http.NewResponseController(w)}
}

// auditID is the ID of the request's audit events. Most requests have none.
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

// FlushError is for http.ResponseController.
func (r *recorder) FlushError() error {
	r.watch()
	defer r.unwatch()
	return r.control.Flush()
}

// watch ends the answer if unwatch is not called in time. A deadline for each write
// would be simpler, but over HTTP/2 it ends answers that have nothing to say for so
// long, and takes a message between goroutines.
func (r *recorder) watch() {
	if r.watchdog != nil {
		r.watchdog.Reset(r.patience)
		return
	}
	r.barked = make(chan struct{}, 1)
	r.watchdog = time.AfterFunc(r.patience, func() {
		// A connection that does not know deadlines, in a test, has none.
		_ = r.control.SetWriteDeadline(time.Unix(1, 0))
		r.barked <- struct{}{}
	})
}

// unwatch waits for a watchdog that has begun to end the answer: nothing may be done
// with an answer after its request.
func (r *recorder) unwatch() {
	if !r.watchdog.Stop() {
		<-r.barked
	}
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

	call    *requestCall // the parsed request
	metrics *metrics

	control  *http.ResponseController
	watchdog *time.Timer   // runs during a write
	fired    chan struct{} // receives a value after the watchdog has ended the answer
	id       string
}

func newRecorder(w http.ResponseWriter, patience time.Duration, m *metrics) *recorder {
	return &recorder{
		ResponseWriter: w, answer: "refused", patience: patience, call: &requestCall{}, metrics: m,
		control: http.NewResponseController(w),
	}
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

// watch starts a timer that ends the answer if unwatch is not called in time. A deadline for each
// write would be simpler, but over HTTP/2 it would also end an answer that pauses for this time
// between two writes, and each deadline would cost a message between goroutines.
func (r *recorder) watch() {
	if r.watchdog != nil {
		r.watchdog.Reset(r.patience)
		return
	}
	r.fired = make(chan struct{}, 1)
	r.watchdog = time.AfterFunc(r.patience, func() {
		// A connection in a test may not support deadlines.
		_ = r.control.SetWriteDeadline(time.Unix(1, 0))
		r.fired <- struct{}{}
	})
}

// unwatch stops the timer. If the timer has fired, unwatch waits until the answer has
// ended, because the answer must not be used after its request.
func (r *recorder) unwatch() {
	if !r.watchdog.Stop() {
		<-r.fired
	}
}

// Unwrap returns the wrapped writer for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// refusal is an error that the client gets as a Status, as from the API server.
type refusal struct {
	// label is the reason in the metrics. It has few values.
	label  string
	status metav1.Status
}

func (r *refusal) Error() string { return r.status.Message }

func refuse(label string, status *apierrors.StatusError) *refusal {
	return &refusal{label: label, status: status.Status()}
}

// unauthorized returns the refusal for a request without a valid credential. Like the API
// server's, it gives no reason.
func unauthorized(label string) *refusal {
	return refuse(label, apierrors.NewUnauthorized("Unauthorized"))
}

func badRequest(label, format string, args ...any) *refusal {
	return refuse(label, apierrors.NewBadRequest(fmt.Sprintf(format, args...)))
}

func forbidden(label, format string, args ...any) *refusal {
	return &refusal{label, metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Reason: metav1.StatusReasonForbidden, Message: fmt.Sprintf(format, args...),
	}}
}

func tooMany(label, format string, args ...any) *refusal {
	return refuse(label, apierrors.NewTooManyRequests(fmt.Sprintf(format, args...), 1))
}

// retryAfter is the time in seconds after which a client may repeat a request while the API server does not
// answer. Clients such as kubectl repeat it ten times.
const retryAfter = 1

// unavailable returns the refusal if the proxy cannot ask the API server: the proxy fails
// closed. The client may repeat the request, which the API server has not executed.
func unavailable(err error) *refusal {
	r := uncertain(err)
	r.status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	return r
}

// uncertain is [unavailable] for a request that the API server may have executed. The client does not repeat it by
// itself: it would, for example, report that an object exists that it has just created.
func uncertain(err error) *refusal {
	var connection *net.OpError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &connection) || errors.As(err, &certificate) {
		err = errNoConnection // without the addresses and names of the API server
	}
	return refuse("unavailable", apierrors.NewServiceUnavailable(fmt.Sprintf("the proxy cannot reach the API server: %v; try again", err)))
}

// errNoConnection is the reason that clients get if a connection to the API server fails.
var errNoConnection = errors.New("there is no connection")

// asRefusal returns the refusal that the client gets for an error.
func asRefusal(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	var full *budget.FullError
	if errors.As(err, &full) {
		return refuse("memory", full.StatusError)
	}
	return unavailable(err)
}

// writeStatus answers with a Status.
func writeStatus(w http.ResponseWriter, accept string, status metav1.Status) {
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	if status.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tenure"`)
	}
	writeObject(w, accept, int(status.Code), metav1.SchemeGroupVersion, &status)
}

// writeObject answers with an object in JSON, or in protobuf to a client that accepts only
// protobuf.
func writeObject(w http.ResponseWriter, accept string, code int, version schema.GroupVersion, object runtime.Object) {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType(accept))
	body, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, version), object)
	if err != nil {
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", info.MediaType)
	h.Set("Cache-Control", "no-cache, private")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) //nolint:gosec // JSON or protobuf, which no browser takes for HTML
}

// mediaType returns protobuf if the client accepts protobuf and not JSON, and JSON
// otherwise.
func mediaType(accept string) string {
	for entry := range strings.SplitSeq(accept, ",") {
		switch name, _, _ := mime.ParseMediaType(entry); name {
		case runtime.ContentTypeJSON, "*/*", "application/*":
			return runtime.ContentTypeJSON
		case runtime.ContentTypeProtobuf:
			if !strings.Contains(accept, runtime.ContentTypeJSON) {
				return runtime.ContentTypeProtobuf
			}
		}
	}
	return runtime.ContentTypeJSON
}

// writeError answers a request with the Status of an error, unless a part of another answer has
// been sent.
func writeError(w http.ResponseWriter, accept string, err error, m *metrics) {
	refused := asRefusal(err)
	if recorded, ok := w.(*recorder); ok {
		if recorded.code != 0 {
			return // the header has been sent
		}
		recorded.answer, recorded.reason = "refused", refused.label
		w.Header().Set(auditHeader, recorded.auditID())
	}
	m.refusals.WithLabelValues(refused.label).Inc()
	writeStatus(w, accept, refused.status)
}

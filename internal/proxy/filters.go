package proxy

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// filterChain returns the handler of all requests. A request passes the filters from the top to the
// bottom of the list. If no filter answers it, the last handler sends it to the API server. A
// filter is in the file that its line names, and the first three are in this file.
func (p *Proxy) filterChain() http.Handler {
	filters := []func(next http.Handler) http.Handler{
		p.withMetrics,        // counts and logs the request
		p.withAudit,          // writes audit events
		p.withPanicRecovery,  // answers if another filter panics
		p.withRequestInfo,    // parses the request: request_info.go
		p.withInFlightLimit,  // limits all requests: limits.go
		p.withAuthentication, // finds the user of the credential: authentication.go
		p.withUserLimits,     // limits the requests of each user: limits.go
		p.withImpersonation,  // allows a user to act as itself: impersonation.go
		p.withFilteredReads,  // answers lists, watches and gets: filtered_reads.go
		p.withAccessReviews,  // answers SelfSubjectAccessReviews: access_reviews.go
		p.withRulesReviews,   // answers SelfSubjectRulesReviews: access_reviews.go
	}
	var next http.Handler = handler(p.passThrough) // pass_through.go
	for _, filter := range slices.Backward(filters) {
		next = filter(next)
	}
	return next
}

// ServeHTTP implements http.Handler. It always answers.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// Over HTTP/1.1 the server reads a rest of the body before it sends the answer, also to a
		// request that a filter refused without reading the body.
		defer func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.timeouts.body)) }()
	}
	p.handler.ServeHTTP(newRecorder(w, p.timeouts.write, p.metrics), r)
}

// handler is a handler in the filter chain. The client gets the returned error as a Status.
type handler func(w *recorder, r *http.Request, c *requestCall) error

// ServeHTTP implements http.Handler. The writer has to be the recorder of the request.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorded := w.(*recorder)
	if err := h(recorded, r, recorded.call); err != nil {
		writeError(w, r.Header.Get("Accept"), err, recorded.metrics)
	}
}

// answerOr returns a handler that answers a request, or calls the next handler if answer returns
// false. The metrics and the audit events name the kind of the answer.
func answerOr(next http.Handler, kind string, answer func(http.ResponseWriter, *http.Request, *requestCall) (done bool, err error)) http.Handler {
	return handler(func(w *recorder, r *http.Request, c *requestCall) error {
		w.answer = kind
		if done, err := answer(w, r, c); done || err != nil {
			return err
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// withMetrics counts and logs a request after its answer.
func (p *Proxy) withMetrics(next http.Handler) http.Handler {
	return handler(func(w *recorder, r *http.Request, c *requestCall) error {
		began := time.Now()
		defer func() {
			p.metrics.request(w.answer, w.code, time.Since(began), c.longRunning())
			if p.log.Enabled(r.Context(), slog.LevelDebug) {
				p.log.Debug("request", "method", r.Method, "path", r.URL.Path, "code", w.code, "answer", w.answer, "took", time.Since(began))
			}
		}()
		next.ServeHTTP(w, r)
		return nil
	})
}

// withAudit writes an event after each request that the proxy does not pass on, and one more
// when the answer of a long-running request begins.
func (p *Proxy) withAudit(next http.Handler) http.Handler {
	return handler(func(w *recorder, r *http.Request, c *requestCall) error {
		began := time.Now()
		entry := func(stage auditv1.Stage) {
			if w.answer != "passed" {
				p.audit.write(audited{request: r, call: c, stage: stage, answer: w.answer, reason: w.reason, code: w.code, began: began, id: w.auditID()})
			}
		}
		w.begun = func() {
			if c.longRunning() {
				entry(auditv1.StageResponseStarted)
			}
		}
		defer entry(auditv1.StageResponseComplete)
		next.ServeHTTP(w, r)
		return nil
	})
}

// withPanicRecovery answers a request whose handler panics. If a part of the answer has been
// sent, it closes the connection, so that the client sees that the answer is incomplete.
func (p *Proxy) withPanicRecovery(next http.Handler) http.Handler {
	return handler(func(w *recorder, r *http.Request, _ *requestCall) (err error) {
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			if aborted, ok := reason.(error); !ok || !errors.Is(aborted, http.ErrAbortHandler) {
				p.log.Error("a request made the proxy panic", "reason", reason)
			}
			if w.code != 0 {
				panic(http.ErrAbortHandler)
			}
			err = uncertain(errors.New("the proxy has a fault"))
		}()
		next.ServeHTTP(w, r)
		return nil
	})
}

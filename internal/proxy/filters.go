package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// handler answers a request. The client gets the returned error.
type handler func(w *recorder, r *http.Request, c *requestCall) error

// filters returns a handler behind all filters of the proxy. Each filter can end a request or
// call the next one; a request passes them from the top to the bottom, and its answer and
// error from the bottom to the top, as at the API server.
func (p *Proxy) filters(answer handler) handler {
	all := []func(handler) handler{
		p.withMetrics,
		p.withAudit,
		p.withErrors,
		p.withPanicRecovery,
		p.withRequestInfo,
		p.withInFlightLimit,
		p.withAuthentication,
		p.withUserLimits,
		p.withImpersonation,
	}
	for i := len(all) - 1; i >= 0; i-- {
		answer = all[i](answer)
	}
	return answer
}

// ServeHTTP implements http.Handler. It always answers.
func (p *Proxy) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	_ = p.handler(newRecorder(rw, p.slow.write), r, &requestCall{})
}

// withMetrics counts and logs a request after its answer.
func (p *Proxy) withMetrics(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
		began := time.Now()
		defer func() {
			p.metrics.request(w.answer, w.code, time.Since(began), c.longRunning())
			if p.log.Enabled(r.Context(), slog.LevelDebug) {
				p.log.Debug("request", "method", r.Method, "path", r.URL.Path, "code", w.code, "answer", w.answer, "took", time.Since(began))
			}
		}()
		return next(w, r, c)
	}
}

// withAudit writes an event after each request that the proxy does not pass on, and one more
// when the answer of a long-running request begins.
func (p *Proxy) withAudit(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
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
		return next(w, r, c)
	}
}

// withErrors answers a request whose handler returns an error with the Status of the error.
func (p *Proxy) withErrors(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
		if err := next(w, r, c); err != nil {
			p.refuse(w, r, err)
		}
		return nil
	}
}

// withPanicRecovery answers a request whose handler panics. If a part of the answer has been
// sent, it closes the connection, so that the client sees that the answer is incomplete.
func (p *Proxy) withPanicRecovery(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) (err error) {
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
			err = unavailable(errors.New("the proxy has a fault"))
		}()
		return next(w, r, c)
	}
}

// withRequestInfo parses a request. It refuses a request without a credential, or with more
// than one reading of who asks.
func (p *Proxy) withRequestInfo(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
		parsed, err := parseRequest(r, p.checks)
		if err != nil {
			return err
		}
		*c = *parsed
		c.auditID = w.auditID
		return next(w, r, c)
	}
}

// withInFlightLimit limits how many requests the proxy handles at a time, and the time and
// the body of each. A long-running request has none of these limits.
func (p *Proxy) withInFlightLimit(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
		if c.longRunning() {
			defer w.unbound()()
			return next(w, r.WithContext(withCall(r.Context(), c)), c)
		}
		if !p.inFlight.take("") {
			return tooMany("in-flight", "the proxy has too many requests, try again later")
		}
		defer p.inFlight.giveBack("")
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(withCall(ctx, c))
		p.boundBody(w, r)
		return next(w, r, c)
	}
}

// boundBody limits the size of a request's body and the time to read it.
func (p *Proxy) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.slow.body))
}

// withAuthentication finds out who sent a request, from its credential.
func (p *Proxy) withAuthentication(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
		if _, err := p.callerOf(r.Context(), c); err != nil {
			return err
		}
		return next(w, r, c)
	}
}

// withUserLimits limits the requests of each user, so that the slow requests of one user do
// not delay those of another, and the memory that they take.
func (p *Proxy) withUserLimits(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
		c.flowKey = p.view.flowKeyOf(c.caller)
		if c.longRunning() {
			c.room = p.memory.OpenExact(c.flowKey)
		} else {
			if !p.perUser.take(c.flowKey) {
				return tooMany("quota", "%q has too many requests under way: at most %d at a time", c.flowKey, p.perUser.max)
			}
			defer p.perUser.giveBack(c.flowKey)
			c.room = p.memory.Open(c.flowKey)
		}
		defer c.room.Close()
		return next(w, r, c)
	}
}

// withImpersonation removes the impersonation headers of a caller that impersonates itself.
// All other headers stay: the API server or [Proxy.identity] decides about them.
func (p *Proxy) withImpersonation(next handler) handler {
	return func(w *recorder, r *http.Request, c *requestCall) error {
		if c.as != nil && c.credential.certified != nil {
			return forbidden("impersonation", "a client certificate cannot impersonate through the proxy: use a token")
		}
		if c.as != nil && c.as.isSelf(c.caller) {
			stripImpersonation(r.Header)
			c.as = nil
		}
		return next(w, r, c)
	}
}

// flowKeyOf returns the key under which the limits count a user. The service
// accounts of a tenant have one key, and so have the service accounts of a namespace
// without a tenant, because an account there can create more accounts. Callers use the same
// key for take and giveBack: a namespace may join a tenant in between.
func (v *authorizationCache) flowKeyOf(who user.Info) string {
	namespace, _, err := serviceaccount.SplitUsername(who.GetName())
	if err != nil {
		return who.GetName()
	}
	if tenant, _ := v.tenantNamed(namespace); tenant != "" {
		return "the service accounts of tenant " + tenant
	}
	return "the service accounts of namespace " + namespace
}

// quota limits how many units each user may hold at a time, and all users together.
type quota struct {
	max, all int // 0 means no limit

	mu    sync.Mutex
	taken map[string]int
	sum   int
}

func newQuota(maximum, all int) *quota {
	return &quota{max: maximum, all: all, taken: map[string]int{}}
}

// take takes one unit for a key, or returns false if the key or all keys together hold the
// maximum. Call giveBack after take returned true.
func (q *quota) take(who string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.max > 0 && q.taken[who] >= q.max || q.all > 0 && q.sum >= q.all {
		return false
	}
	q.taken[who]++
	q.sum++
	return true
}

func (q *quota) giveBack(who string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum--
	if q.taken[who]--; q.taken[who] <= 0 {
		delete(q.taken, who)
	}
}

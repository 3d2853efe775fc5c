package proxy

import "net/http"

// handler answers a request. The client gets the returned error.
type handler func(w *recorder, r *http.Request, c *requestCall) error

// filters returns a handler behind all filters of the proxy. Each filter can end a request or
// call the next one; a request passes them from the top to the bottom, and its answer and
// error from the bottom to the top, as at the API server.
func (p *Proxy) filters(answer handler) handler {
	all := []func(handler) handler{
		p.withMetrics,        // metrics.go
		p.withAudit,          // audit.go
		p.withErrors,         // refusal.go
		p.withPanicRecovery,  // panic_recovery.go
		p.withRequestInfo,    // request_call.go
		p.withInFlightLimit,  // limit.go
		p.withAuthentication, // authenticate.go
		p.withUserLimits,     // limit.go
		p.withImpersonation,  // impersonation.go
	}
	for i := len(all) - 1; i >= 0; i-- {
		answer = all[i](answer)
	}
	return answer
}

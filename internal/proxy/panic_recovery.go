package proxy

import (
	"errors"
	"net/http"
)

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

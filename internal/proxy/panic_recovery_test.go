package proxy

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestPanicRecovery checks that a panic becomes an error, and that it closes the connection if a
// part of the answer has been sent.
func TestPanicRecovery(t *testing.T) {
	t.Parallel()
	p := &Proxy{log: slog.New(slog.DiscardHandler)}
	request := httptest.NewRequest(http.MethodGet, "/api", http.NoBody)
	serve := func(send bool) (panicked any, err error) {
		defer func() { panicked = recover() }()
		h := p.withPanicRecovery(func(w *recorder, _ *http.Request, _ *requestCall) error {
			if send {
				w.WriteHeader(http.StatusOK)
			}
			panic("a fault")
		})
		return nil, h(newRecorder(httptest.NewRecorder(), writeTimeout), request, &requestCall{})
	}
	if panicked, err := serve(false); err == nil || panicked != nil {
		t.Errorf("before the answer: got error %v and panic %v, want an error", err, panicked)
	}
	panicked, _ := serve(true)
	if err, ok := panicked.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("within the answer: got panic %v, want %v", panicked, http.ErrAbortHandler)
	}
}

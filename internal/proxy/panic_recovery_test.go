package proxy

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestPanicRecovery checks that a panic becomes an error, and that it closes the connection if a
// part of the answer has been sent.
func TestPanicRecovery(t *testing.T) {
	t.Parallel()
	p := &Proxy{log: slog.New(slog.DiscardHandler)}
	metrics, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, "/api", http.NoBody)
	serve := func(send bool) (panicked any, code int) {
		answer := httptest.NewRecorder()
		defer func() { panicked, code = recover(), answer.Code }()
		h := p.withPanicRecovery(handler(func(w *recorder, _ *http.Request, _ *requestCall) error {
			if send {
				w.WriteHeader(http.StatusOK)
			}
			panic("a fault")
		}))
		h.ServeHTTP(newRecorder(answer, writeTimeout, metrics), request)
		return nil, 0
	}
	if panicked, code := serve(false); code != http.StatusServiceUnavailable || panicked != nil {
		t.Errorf("before the answer: got code %d and panic %v, want %d", code, panicked, http.StatusServiceUnavailable)
	}
	panicked, _ := serve(true)
	if err, ok := panicked.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("within the answer: got panic %v, want %v", panicked, http.ErrAbortHandler)
	}
}

package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRetryAfter stops the API server in front of which the proxy stands. Clients such as kubectl repeat a request only if
// the answer says so, and a request that the API server may have executed must not be repeated. The
// answers do not contain the API server's address.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	hangUp := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(hangUp.Close)
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	gone.Close()
	const one, all, own = "/api/v1/namespaces/a/configmaps", "/api/v1/configmaps", "/api/v1/namespaces"
	for _, tc := range []struct {
		reason   string
		upstream *httptest.Server
		method   string
		path     string
		again    bool
	}{
		{"no connection, a list that is passed on", gone, http.MethodGet, one, true},
		{"no connection, a watch", gone, http.MethodGet, one + "?watch=1", true},
		{"no connection, so the object was not created", gone, http.MethodPost, one, true},
		{"no connection, a list that the proxy filters", gone, http.MethodGet, own + "/b", true},
		{"no answer to a list that is passed on", hangUp, http.MethodGet, one, true},
		{"no answer to a request that may have created the object", hangUp, http.MethodPost, one, false},
		{"no answer to a request that may have changed the object", hangUp, http.MethodPatch, one + "/c", false},
		{"no answer to a request that may have deleted the object", hangUp, http.MethodDelete, one + "/c", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := fronting(t, tc.upstream, Options{})
			code, body, header := s.raw(t, s.request(t, tc.method, tc.path, "ann"))
			if code != http.StatusServiceUnavailable || !strings.Contains(body, `"kind":"Status"`) {
				t.Errorf("got %d %s", code, body)
			}
			if again := header.Get("Retry-After") != ""; again != tc.again {
				t.Errorf("the client tries again: %v, want %v: %v", again, tc.again, header)
			}
			if strings.Contains(body, "127.0.0.1") {
				t.Errorf("the answer contains the address of the API server: %s", body)
			}
		})
	}
	t.Run("no connection, a token that nobody knows", func(t *testing.T) {
		t.Parallel()
		s := before(t, gone, Options{})
		code, body, header := s.raw(t, s.request(t, http.MethodPost, one, "ann"))
		if code != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || strings.Contains(body, "127.0.0.1") {
			t.Errorf("got %d %v %s", code, header, body)
		}
	})
}

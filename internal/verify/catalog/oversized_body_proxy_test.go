package catalog

import (
	"io"
	"net/http"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestLargeBody sends the body to a proxy that reads it to its end and to one with a limit.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit int64
		want  Outcome
	}{"no limit": {1 << 30, GotThrough}, "limit": {3 << 20, Stopped}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := proxied(t, newFakeEnv(interceptor.Funcs{}), func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(http.MaxBytesReader(w, r.Body, tc.limit)); err != nil {
					http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
					return
				}
				w.WriteHeader(http.StatusCreated)
			})
			if got := c.tryAll(t.Context(), []rawRequest{c.large()}); got.Outcome != tc.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

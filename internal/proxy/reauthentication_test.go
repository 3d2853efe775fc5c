package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestOpenWatchEnds checks that an open watch ends with io.EOF if its credential is
// revoked, and continues while the API server does not answer.
func TestOpenWatchEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, path string
		as           string // the impersonated user
		answer       *authenticator.Response
		ok           bool
		err          error
		right        error // the result of the later check of the right to impersonate
		ends         bool
	}{
		{"a token that is revoked", "/api/v1/namespaces?watch=true", "", nil, false, nil, nil, true},
		{"one of a watch that is passed on", "/api/v1/namespaces/a/pods?watch=true", "", nil, false, nil, nil, true},
		{"one that is somebody else's now", "/api/v1/namespaces?watch=true", "", &authenticator.Response{User: &user.DefaultInfo{Name: "other"}}, true, nil, nil, true},
		{"one of whom a group is gone", "/api/v1/namespaces?watch=true", "", &authenticator.Response{User: &user.DefaultInfo{Name: "somebody"}}, true, nil, nil, true},
		{"an API server that cannot be asked", "/api/v1/namespaces?watch=true", "", nil, false, errors.New("gone"), nil, false},
		{"one that cannot be asked, of a watch that is passed on", "/api/v1/namespaces/a/pods?watch=true", "", nil, false, errors.New("gone"), nil, false},
		{"nothing new", "/api/v1/namespaces?watch=true", "", somebody, true, nil, nil, false},
		{"a right to impersonate that is gone", "/api/v1/namespaces?watch=true", "alice", somebody, true, nil, forbidden("impersonation", "no"), true},
		{"a right that cannot be asked about", "/api/v1/namespaces?watch=true", "alice", somebody, true, nil, unavailable(errors.New("gone")), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := facing(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintln(w, "{}")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, Options{})
			var changed atomic.Bool
			var asked atomic.Int64 // after the change
			s.proxy.reauthenticationInterval = 10 * time.Millisecond
			s.proxy.reviews.tokens = authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
				if !changed.Load() {
					return somebody, true, nil
				}
				asked.Add(1)
				return tc.answer, tc.ok, tc.err
			})
			s.proxy.mayImpersonate = func(context.Context, string, user.Info, *impersonation) error {
				if !changed.Load() {
					return nil
				}
				return tc.right
			}
			r := s.request(t, http.MethodGet, tc.path, "token")
			if tc.as != "" {
				r.Header.Set("Impersonate-User", tc.as)
			}
			response, err := s.server.Client().Transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			// The watch must have an event before it ends.
			const event = "{}\n"
			began := make([]byte, len(event))
			if _, err := io.ReadFull(response.Body, began); err != nil || string(began) != event {
				t.Fatalf("it begins with %q: %v", began, err)
			}
			ended := make(chan string, 1)
			go func() {
				body, err := io.ReadAll(response.Body)
				ended <- fmt.Sprint(string(body), err)
			}()
			changed.Store(true)
			if tc.ends {
				if got := <-ended; got != "<nil>" {
					t.Errorf("it ends with %q", got)
				}
				return
			}
			testwait.For(t, "the caller to be asked about often", patience, func() (bool, string) {
				return asked.Load() > 5, fmt.Sprint(asked.Load())
			})
			select {
			case got := <-ended:
				t.Errorf("it ends with %q", got)
			default:
			}
		})
	}
}

var somebody = &authenticator.Response{User: &user.DefaultInfo{Name: "somebody", Groups: []string{"team"}}}

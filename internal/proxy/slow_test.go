package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// facing returns a proxy before a handler. A token is the name of its user.
func facing(t *testing.T, h http.HandlerFunc, o Options) *setup {
	t.Helper()
	b := httptest.NewTLSServer(h)
	t.Cleanup(b.Close)
	return fronting(t, b, o)
}

// fronting returns a proxy before a server. A token is the name of its user. The proxy
// caches tokens as usual.
func fronting(t testing.TB, upstream *httptest.Server, o Options) *setup {
	t.Helper()
	o.Config = &rest.Config{Host: upstream.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	p.cache.begun.Store(true) // the cache has no objects
	p.reviews.tokens = tokencache.New(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
	}), false, tokenTTL, invalidTTL)
	s := &setup{proxy: p, server: serve(p)}
	t.Cleanup(s.server.Close)
	return s
}

// held returns the users that hold units of the quota.
func (q *quota) held() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []string
	for who, n := range q.taken {
		all = append(all, fmt.Sprint(who, " ", n))
	}
	return all
}

// TestSlowReader checks that the request of a client that does not read its answer ends and
// no longer counts in any limit.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := facing(t, func(w http.ResponseWriter, r *http.Request) {
		for some := make([]byte, 64<<10); ; {
			if _, err := w.Write(some); err != nil {
				return
			}
		}
	}, Options{})
	s.proxy.timeouts.write = 200 * time.Millisecond
	for _, tc := range []struct {
		reason, path string
		http2        bool
	}{
		{"an answer", "/api/v1/namespaces/a/pods", false},
		{"an answer over HTTP/2", "/api/v1/namespaces/a/pods", true},
		{"one of the proxy's", "/api/v1/namespaces", false},
		{"a watch", "/api/v1/namespaces/a/pods?watch=true", false},
		{"a watch over HTTP/2", "/api/v1/namespaces/a/pods?watch=true", true},
		{"a log", "/api/v1/namespaces/a/pods/b/log?follow=true", false},
	} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: tc.http2}
		t.Cleanup(transport.CloseIdleConnections)
		response, err := transport.RoundTrip(s.request(t, http.MethodGet, tc.path, strings.ReplaceAll(tc.reason, " ", "-")))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		if (response.ProtoMajor == 2) != tc.http2 {
			t.Fatalf("%s comes by %s", tc.reason, response.Proto)
		}
	}
	testwait.For(t, "the requests to be given up", patience, func() (bool, string) {
		taken := slices.Concat(s.proxy.perUser.held(), s.proxy.watches.held(), s.proxy.lists.held(), s.proxy.inFlight.held())
		return len(taken) == 0, fmt.Sprint("still there: ", taken)
	})
}

// TestQuietAnswers checks that an answer without writes for longer than writeTimeout
// continues: no client has read slowly.
func TestQuietAnswers(t *testing.T) {
	t.Parallel()
	const quiet = time.Second
	for _, tc := range []struct {
		reason, path string
		http2        bool
	}{
		{"a watch", "/api/v1/namespaces/a/pods?watch=true", false},
		{"a watch over HTTP/2", "/api/v1/namespaces/a/pods?watch=true", true},
		{"one of the proxy's", "/api/v1/namespaces?watch=true", false},
		{"one of the proxy's over HTTP/2", "/api/v1/namespaces?watch=true", true},
		{"a log over HTTP/2", "/api/v1/namespaces/a/pods/b/log?follow=true", true},
		{"an answer over HTTP/2", "/api/v1/namespaces/a/pods", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			speak := make(chan struct{})
			s := facing(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for range 2 {
					fmt.Fprintln(w, "{}")
					_ = http.NewResponseController(w).Flush()
					<-speak
				}
			}, Options{})
			s.proxy.timeouts.write = quiet
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: tc.http2}
			t.Cleanup(transport.CloseIdleConnections)
			response, err := transport.RoundTrip(s.request(t, http.MethodGet, tc.path, "patient"))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			time.AfterFunc(3*quiet/2, func() { close(speak) }) // no other sign that time has passed
			if body, err := io.ReadAll(response.Body); string(body) != "{}\n{}\n" || err != nil {
				t.Errorf("got %q, %v", body, err)
			}
		})
	}
}

// deadlines is a response writer that records its write deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// TestBoundOfServer checks that the server's WriteTimeout applies to short answers until
// their end, and that the proxy removes it from long-running answers until they end.
func TestBoundOfServer(t *testing.T) {
	t.Parallel()
	s := facing(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, "{}")
	}, Options{})
	for _, tc := range []struct {
		reason, path string
		long         bool
	}{
		{"an answer", "/api/v1/namespaces/a/pods", false},
		{"one of the proxy's", "/api/v1/namespaces", false},
		{"a watch", "/api/v1/namespaces/a/pods?watch=true", true},
		{"one of the proxy's", "/api/v1/namespaces?watch=true", true},
		{"a log", "/api/v1/namespaces/a/pods/b/log?follow=true", true},
	} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil)
		r.Header.Set("Authorization", "Bearer somebody")
		s.proxy.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("%s: got %d %s", tc.reason, w.Code, w.Body)
		}
		if got := len(w.set); !tc.long && got != 0 || tc.long && (got != 2 || !w.set[0].IsZero() || time.Until(w.set[1]) <= 0) {
			t.Errorf("%s: got deadlines %v", tc.reason, w.set)
		}
	}
}

// TestSlowBody checks that a client that does not send the announced body gets an answer.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	s := facing(t, func(w http.ResponseWriter, r *http.Request) {
		// Without a time limit. The API server does not answer 200 for a body that breaks off either, and its answer can arrive
		// before the proxy gives up.
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}, Options{})
	s.proxy.timeouts.body = 200 * time.Millisecond
	for _, path := range []string{"/api/v1/namespaces/a/pods", accessReviewPath} {
		conn := s.dial(t)
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer slow\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", path)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		defer response.Body.Close()
		if response.StatusCode < 400 {
			t.Errorf("%s: got %s", path, response.Status)
		}
		testwait.For(t, "the request to be given up", patience, func() (bool, string) {
			return len(s.proxy.inFlight.held()) == 0, fmt.Sprint(s.proxy.inFlight.held())
		})
	}
}

// TestShareOfRequests checks that the requests of one user leave room for requests of
// others.
func TestShareOfRequests(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := facing(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			<-release
		}
	}, Options{Limits: Limits{MaxInFlight: 8}})
	var held sync.WaitGroup
	for range 2 {
		held.Go(func() { s.raw(t, s.request(t, http.MethodGet, "/held", "greedy")) })
	}
	testwait.For(t, "two requests to be held", patience, func() (bool, string) {
		held := s.proxy.perUser.held()
		return slices.Equal(held, []string{"greedy 2"}), fmt.Sprint(held)
	})
	for token, want := range map[string]int{"greedy": http.StatusTooManyRequests, "modest": http.StatusOK} {
		if code, body, _ := s.raw(t, s.request(t, http.MethodGet, "/free", token)); code != want {
			t.Errorf("%s: want %d, got %d %s", token, want, code, body)
		}
	}
	close(release)
	held.Wait()
	if code, body, _ := s.raw(t, s.request(t, http.MethodGet, "/free", "greedy")); code != http.StatusOK {
		t.Errorf("after that: got %d %s", code, body)
	}
}

// TestShareOfAccounts checks that the service accounts of one tenant, which can create
// them, share the limits.
func TestShareOfAccounts(t *testing.T) {
	t.Parallel()
	s := facing(t, func(_ http.ResponseWriter, r *http.Request) {}, Options{Limits: Limits{MaxLists: 1, MaxWatches: 1, MaxInFlight: inFlightShare}})
	for name, set := range map[string]map[string]string{
		"a-1": {v1alpha1.LabelTenant: "a"}, "a-2": {v1alpha1.LabelTenant: "a"}, "b-1": {v1alpha1.LabelFluxTenant: "b"}, "tools": nil, "other": nil,
	} {
		ns := &corev1.Namespace{ObjectMeta: objectMeta("", name)}
		ns.Labels = set
		put(t, s.proxy.cache.namespaces, ns)
	}
	for _, tc := range []struct {
		reason, first, second string
		together              bool
	}{
		{"one account", "system:serviceaccount:a-1:x", "system:serviceaccount:a-1:x", true},
		{"two of one namespace", "system:serviceaccount:a-1:x", "system:serviceaccount:a-1:y", true},
		{"two of one tenant", "system:serviceaccount:a-1:x", "system:serviceaccount:a-2:x", true},
		{"of two tenants", "system:serviceaccount:a-1:x", "system:serviceaccount:b-1:x", false},
		{"two of a namespace that is no tenant's", "system:serviceaccount:tools:x", "system:serviceaccount:tools:y", true},
		{"of two namespaces that are no tenant's", "system:serviceaccount:tools:x", "system:serviceaccount:other:x", false},
		{"two people", "ann", "ben", false},
		{"a person called like a tenant's account, but for a part", "system:serviceaccount:a-1", "system:serviceaccount:a-1:x", false},
	} {
		first := s.proxy.cache.flowKeyOf(&user.DefaultInfo{Name: tc.first})
		for path, q := range map[string]*quota{
			"/api/v1/namespaces/a-1/pods": s.proxy.perUser, "/api/v1/namespaces/a-1/pods?watch=true": s.proxy.watches,
			"/api/v1/namespaces": s.proxy.lists, "/api/v1/namespaces?watch=true": s.proxy.watches,
		} {
			if !q.take(first, 1) {
				t.Fatalf("%s: there is something left of the last one: %v", tc.reason, q.held())
			}
			code, body, _ := s.raw(t, s.request(t, http.MethodGet, path, tc.second))
			if (code == http.StatusTooManyRequests) != tc.together {
				t.Errorf("%s: %s is answered with %d %s", tc.reason, path, code, body)
			}
			q.giveBack(first, 1)
			testwait.For(t, "the request to be given back", patience, func() (bool, string) {
				return len(q.held()) == 0, fmt.Sprint(q.held())
			})
		}
	}
}

// roundTripper is a function that implements http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOpeningWatches checks that the proxy opens only a few watches of one user at the same
// time, and that a watch of another user does not wait for them.
func TestOpeningWatches(t *testing.T) {
	t.Parallel()
	s := facing(t, func(http.ResponseWriter, *http.Request) {}, Options{})
	release := make(chan struct{})
	var under, most atomic.Int64
	s.proxy.transports.ownLong = roundTripper(func(r *http.Request) (*http.Response, error) {
		now := under.Add(1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		defer under.Add(-1)
		if r.Header.Get("User-Agent") != `tenure-proxy (for "modest") Go-http-client/2.0` {
			<-release
		}
		return nil, errors.New("nobody is there")
	})
	const watches = 100
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	open := func(user string) {
		response, err := client.Do(s.request(t, http.MethodGet, "/api/v1/namespaces?watch=true", user))
		if err != nil {
			t.Error(err)
			return
		}
		response.Body.Close()
	}
	var all sync.WaitGroup
	for range watches {
		all.Go(func() { open("greedy") })
	}
	testwait.For(t, "the watches to come to the gate", patience, func() (bool, string) {
		before := s.proxy.watchGate.before("greedy")
		return before == watches && under.Load() == maxOpeningEach, fmt.Sprint(before, " before it, ", under.Load(), " under way")
	})
	open("modest")
	close(release)
	all.Wait()
	if got := most.Load(); got != maxOpeningEach+1 {
		t.Errorf("%d were on the way at a time", got)
	}
	if len(s.proxy.watchGate.users) != 0 || len(s.proxy.watchGate.all) != 0 {
		t.Error("the gate remembers who has gone")
	}
}

// TestOpeningWatchesOfImpersonators checks that a caller that impersonates several users opens as
// few watches at the same time as a caller that does not.
func TestOpeningWatchesOfImpersonators(t *testing.T) {
	t.Parallel()
	s := facing(t, func(http.ResponseWriter, *http.Request) {}, Options{})
	s.proxy.mayImpersonate = func(context.Context, string, user.Info, *impersonation) error { return nil }
	release := make(chan struct{})
	var under atomic.Int64
	s.proxy.transports.ownLong = roundTripper(func(*http.Request) (*http.Response, error) {
		under.Add(1)
		<-release
		return nil, errors.New("nobody is there")
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	const users = 4
	var all sync.WaitGroup
	for i := range users * maxOpeningEach {
		all.Go(func() {
			r := s.request(t, http.MethodGet, "/api/v1/namespaces?watch=true", "greedy")
			r.Header.Set("Impersonate-User", fmt.Sprint("user-", i%users))
			response, err := transport.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
		})
	}
	testwait.For(t, "the watches to come to the gate", patience, func() (bool, string) {
		waiting := s.proxy.watchGate.before("greedy")
		for i := range users {
			waiting += s.proxy.watchGate.before(fmt.Sprint("user-", i))
		}
		return waiting == users*maxOpeningEach && under.Load() >= maxOpeningEach, fmt.Sprint(waiting, " before it, ", under.Load(), " under way")
	})
	if got := s.proxy.watchGate.before("greedy"); got != users*maxOpeningEach {
		t.Errorf("%d of %d watches count for the caller", got, users*maxOpeningEach)
	}
	close(release)
	all.Wait()
}

func (g *watchGate) before(who string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := g.users[who]; q != nil {
		return q.size
	}
	return 0
}

func TestGate(t *testing.T) {
	t.Parallel()
	g := newGate(3, 2)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var leave []func()
	for _, tc := range []struct {
		reason, who string
		ctx         context.Context
		in          bool
	}{
		{"the first", "a", t.Context(), true},
		{"as many as one may have", "a", t.Context(), true},
		{"one more than one may have", "a", gone, false},
		{"another's", "b", t.Context(), true},
		{"one more than all may have", "c", gone, false},
	} {
		out, err := g.enter(tc.ctx, tc.who)
		if (err == nil) != tc.in {
			t.Fatalf("%s: got %v", tc.reason, err)
		}
		if err == nil {
			leave = append(leave, out)
		}
	}
	for _, out := range leave {
		out()
	}
	if len(g.users) != 0 || len(g.all) != 0 {
		t.Errorf("%d users and %d places are left", len(g.users), len(g.all))
	}
}

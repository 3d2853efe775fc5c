package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
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
	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// reader gives a user the right to read Pods in namespaces of a tenant.
func reader(t *testing.T, p *Proxy, name string, namespaces ...string) {
	t.Helper()
	put(t, p.cache.clusterRoles, &rbacv1.ClusterRole{ObjectMeta: objectMeta("", "read"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"}}}})
	for _, namespace := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: objectMeta("", namespace)}
		ns.Labels = map[string]string{v1alpha1.LabelTenant: "a"}
		put(t, p.cache.namespaces, ns)
		put(t, p.cache.bound, readers(namespace, nil, rbacv1.Subject{Kind: rbacv1.UserKind, Name: name}))
	}
}

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, "-", i))
	}
	return names
}

// unread is a client that reads almost nothing of an answer over HTTP/2.
func unread() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 10}}
}

func overHTTP2(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	upstream := httptest.NewUnstartedServer(h)
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	return upstream
}

// TestBindingsOfOthers checks that the work for a request does not grow with the number of
// RoleBindings that name the user in one namespace: another tenant can create them.
func TestBindingsOfOthers(t *testing.T) { //nolint:paralleltest // testing.AllocsPerRun demands it
	v := countedView(t)
	const bindings = 1000
	for i := range bindings {
		b := readers("b-1", nil, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "ann"})
		b.Name = fmt.Sprint(i)
		put(t, v.bound, b)
	}
	who := &user.DefaultInfo{Name: "ann", Groups: []string{"team-a"}}
	if got := testing.AllocsPerRun(1, func() { v.visible(who, attributes{verb: "list", group: "apps", resource: "deployments"}) }); got > bindings/2 {
		t.Errorf("one request takes %v allocations for %d bindings of one namespace", got, bindings)
	}
}

// TestLargeObjects checks that the cache keeps a part of a RoleBinding or Role that is too large.
func TestLargeObjects(t *testing.T) {
	t.Parallel()
	b := readers("a-1", nil, slices.Repeat([]rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "x"}}, maxEntries+1)...)
	r := &rbacv1.Role{ObjectMeta: objectMeta("a-1", "r"), Rules: slices.Repeat([]rbacv1.PolicyRule{{Verbs: []string{"get"}}}, maxEntries+1)}
	binding, errB := trim(b)
	role, errR := trim(r)
	if errB != nil || errR != nil {
		t.Fatal(errB, errR)
	}
	if subjects, rules := len(binding.(*rbacv1.RoleBinding).Subjects), len(role.(*rbacv1.Role).Rules); subjects != maxEntries || rules != maxEntries {
		t.Errorf("the cache keeps %d subjects and %d rules", subjects, rules)
	}
}

// TestLargeReview checks that the API server answers a large review, with the whole body: the
// proxy does not decode it.
func TestLargeReview(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	s := facing(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body) // a body that is cut is shorter
		arrived.Store(n)
		w.WriteHeader(http.StatusTeapot)
	}, Options{})
	review, err := json.Marshal(&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "namespaces"}}})
	if err != nil {
		t.Fatal(err)
	}
	review = bytes.Replace(review, []byte("{"), []byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",`), 1)
	for size, want := range map[int]int{maxAccessReview: http.StatusCreated, maxAccessReview + 1: http.StatusTeapot, maxBody: http.StatusTeapot} {
		arrived.Store(0)
		r := s.request(t, http.MethodPost, accessReviewPath, "ann")
		body := slices.Concat(review, bytes.Repeat([]byte(" "), size-len(review)))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(size)
		r.Header.Set("Content-Type", "application/json")
		code, answer, _ := s.raw(t, r)
		if code != want || want == http.StatusTeapot && arrived.Load() != int64(size) {
			t.Errorf("%d bytes: want %d, got %d %s, and %d bytes arrive", size, want, code, answer, arrived.Load())
		}
	}
}

// TestUnknownTokens checks that requests of every kind count as in flight until the proxy knows who
// sends them.
func TestUnknownTokens(t *testing.T) {
	t.Parallel()
	const limit, requests = 4, 20
	for _, path := range []string{"/api/v1/pods", "/api/v1/pods?watch=true", "/api/v1/namespaces/a/pods/b/log"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			s := facing(t, func(w http.ResponseWriter, _ *http.Request) {
				<-release
				w.WriteHeader(http.StatusUnauthorized)
			}, Options{Limits: Limits{MaxInFlight: limit}})
			s.proxy.reviews.tokens = newReviews(s.proxy.host, s.proxy.transports.short, func(bool) {}).tokens
			var refused, unknown atomic.Int64
			var all sync.WaitGroup
			for i := range requests {
				all.Go(func() {
					switch code, body, _ := s.raw(t, s.request(t, http.MethodGet, path, fmt.Sprint("unknown-", i))); code {
					case http.StatusTooManyRequests:
						refused.Add(1)
					case http.StatusUnauthorized:
						unknown.Add(1)
					default:
						t.Errorf("got %d %s", code, body)
					}
				})
			}
			testwait.For(t, "all but a few requests to be refused", patience, func() (bool, string) {
				return refused.Load() == requests-limit, fmt.Sprint(refused.Load(), " are refused")
			})
			close(release)
			all.Wait()
			if unknown.Load() != limit {
				t.Errorf("%d requests were let in", unknown.Load())
			}
		})
	}
}

// TestWatchesOfManyNamespaces checks that a watch in all namespaces counts by the number of
// namespaces, also when namespaces join.
func TestWatchesOfManyNamespaces(t *testing.T) {
	t.Parallel()
	s := fronting(t, overHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush() // as if there were no events
		<-r.Context().Done()
	}), Options{Limits: Limits{MaxWatches: 10}})
	reader(t, s.proxy, "ann", numbered("a", 3*namespacesPerWatch)...)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	ended := make(chan string, 2)
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		response, err := transport.RoundTrip(s.request(t, http.MethodGet, "/api/v1/pods?watch=true", "ann"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		if response.StatusCode != want {
			t.Errorf("watch %d: want %d, got %s", i, want, response.Status)
		}
		if want == http.StatusOK {
			go func() { ended <- readAll(response) }()
		}
	}
	reader(t, s.proxy, "ann", numbered("joined", 3*namespacesPerWatch)...)
	s.proxy.cache.change.fire()
	// One ends; the other one may grow in its place.
	if event := <-ended; !strings.Contains(event, `"code":410`) {
		t.Errorf("after namespaces have joined: got %s", event)
	}
}

// TestUnreadWatch checks that the proxy holds little of a watch that its client does not read.
func TestUnreadWatch(t *testing.T) {
	t.Parallel()
	const most = 256 << 10
	written := make(chan int, 1)
	s := fronting(t, overHTTP2(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// Time enough for the 4 MiB of Go's default.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * time.Second))
		sent, some := 0, make([]byte, 16<<10)
		for sent < 4<<20 {
			n, err := w.Write(some)
			if sent += n; err != nil {
				break
			}
		}
		written <- sent
	}), Options{})
	response, err := unread().RoundTrip(s.request(t, http.MethodGet, "/api/v1/namespaces/a/pods?watch=true", "ann"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if sent := <-written; sent > most {
		t.Errorf("the proxy holds %d bytes", sent)
	}
}

// TestUnreadEvents checks that the events that clients do not read count in the memory of their
// user: a watch in all namespaces has to hold one until it is sent.
func TestUnreadEvents(t *testing.T) {
	t.Parallel()
	const watches = 40
	event := []byte(`{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"},"data":"` + strings.Repeat("x", 1<<20) + `"}}` + "\n")
	s := fronting(t, overHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(event) // the proxy may have ended the watch
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), Options{})
	reader(t, s.proxy, "ann", numbered("a", 2*namespacesPerWatch)...)
	ctx, cancel := context.WithCancel(t.Context())
	var refused atomic.Int64
	var all sync.WaitGroup
	for range watches {
		// One after the other, since a server of HTTP/2 gives a new connection two seconds.
		transport := unread()
		response, err := transport.RoundTrip(s.request(t, http.MethodGet, "/api/v1/pods?watch=true", "ann").WithContext(ctx))
		if err != nil {
			cancel()
			t.Fatal(err)
		}
		all.Go(func() {
			defer transport.CloseIdleConnections()
			defer response.Body.Close()
			first := make([]byte, 1)
			_, _ = response.Body.Read(first) // the first event begins
			start, _ := io.ReadAll(io.LimitReader(response.Body, 32))
			if response.StatusCode == http.StatusTooManyRequests || strings.Contains(string(start), `"ERROR"`) {
				refused.Add(1)
			}
			<-ctx.Done()
		})
	}
	limits := budget.Default()
	testwait.For(t, "the memory of the user to be used up", patience, func() (bool, string) {
		taken := s.proxy.memory.Taken()
		if taken > limits.Each {
			t.Fatalf("%d bytes are taken", taken)
		}
		return refused.Load() > 0 && taken > limits.Each/2, fmt.Sprint(taken, " bytes are taken, ", refused.Load(), " watches refused")
	})
	cancel()
	all.Wait()
	testwait.For(t, "the memory to be given back", patience, func() (bool, string) {
		taken := s.proxy.memory.Taken()
		return taken == 0, fmt.Sprint(taken)
	})
}

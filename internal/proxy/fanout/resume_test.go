package fanout

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// backend is an API server with list version 100 that records the watches. Namespace a has
// an event of version 110, and namespace b has no event yet.
type backend struct {
	mu     sync.Mutex
	opened map[string][]string
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/nodes") {
		http.NotFound(w, r)
		return
	}
	namespace := strings.Split(r.URL.Path, "/")[4]
	if r.URL.Query().Get("watch") != "true" {
		_, _ = fmt.Fprint(w, `{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[]}`)
		return
	}
	version := r.URL.Query().Get("resourceVersion")
	b.mu.Lock()
	b.opened[namespace] = append(b.opened[namespace], version)
	b.mu.Unlock()
	if namespace == "a" && version == "100" {
		_, _ = fmt.Fprintln(w, `{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"110"}}}`)
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func (b *backend) seen() map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[string][]string{}
	for namespace, versions := range b.opened {
		seen[namespace] = append([]string(nil), versions...)
	}
	return seen
}

// TestResume checks that a client that continues at version 110 of namespace a gets the
// earlier events of namespace b that had not arrived.
func TestResume(t *testing.T) {
	t.Parallel()
	api := &backend{opened: map[string][]string{}}
	upstream := httptest.NewServer(api)
	t.Cleanup(upstream.Close)
	base, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Transport: http.DefaultTransport, Base: base, Memory: budget.New(budget.Default())}
	visible := []string{"a", "b"}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Answer(w, r, Request{Identity: "u", Prefix: "/api/v1", Resource: "things", Watch: r.URL.Query().Get("watch") == "true", Visible: func() ([]string, <-chan struct{}) { return visible, nil }})
	}))
	t.Cleanup(front.Close)
	ask := func(ctx context.Context, query string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+"/api/v1/things"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	opened := func(want map[string][]string) {
		t.Helper()
		testwait.For(t, "the namespaces to be watched", patience, func() (bool, string) {
			diff := cmp.Diff(want, api.seen())
			return diff == "", diff
		})
	}
	if got := ask(t.Context(), "?watch=true&resourceVersion=100").StatusCode; got != http.StatusGone {
		t.Errorf("a version that we have not given: got %d, want 410", got)
	}
	ask(t.Context(), "")
	ctx, cancel := context.WithCancel(t.Context())
	first := ask(ctx, "?watch=true&resourceVersion=100")
	if line, err := bufio.NewReader(first.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"110"`) {
		t.Fatalf("the event of namespace a: %q %v", line, err)
	}
	opened(map[string][]string{"a": {"100"}, "b": {"100"}})
	cancel()
	testwait.For(t, "the end of the watch to be remembered", patience, func() (bool, string) {
		return s.positions.get(Request{Identity: "u", Prefix: "/api/v1", Resource: "things"}.key(url.Values{}, "110")) != nil, "it is not"
	})
	ctx, cancel = context.WithCancel(t.Context())
	ask(ctx, "?watch=true&resourceVersion=110")
	opened(map[string][]string{"a": {"100", "110"}, "b": {"100", "100"}})
	cancel()
	// Another identity, or another selector, has to list.
	if got := ask(t.Context(), "?watch=true&resourceVersion=110&labelSelector=x").StatusCode; got != http.StatusGone {
		t.Errorf("the version of another question: got %d, want 410", got)
	}
	visible = []string{"a"}
	if got := ask(t.Context(), "?watch=true&resourceVersion=110").StatusCode; got != http.StatusGone {
		t.Errorf("a namespace that went meanwhile: got %d, want 410", got)
	}
}

// TestNotNamespaced checks that Answer returns false for a cluster-scoped kind and writes
// nothing.
func TestNotNamespaced(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(&backend{opened: map[string][]string{}})
	t.Cleanup(upstream.Close)
	base, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Transport: http.DefaultTransport, Base: base, Memory: budget.New(budget.Default())}
	for _, watch := range []bool{false, true} {
		w := httptest.NewRecorder()
		answered := s.Answer(w, httptest.NewRequest(http.MethodGet, "/api/v1/nodes", nil), Request{
			Identity: "u", Prefix: "/api/v1", Resource: "nodes", Watch: watch,
			Visible: func() ([]string, <-chan struct{}) { return []string{"a", "b"}, nil },
		})
		if answered || w.Body.Len() > 0 {
			t.Errorf("watch %v: answered %v: %s", watch, answered, w.Body)
		}
	}
}

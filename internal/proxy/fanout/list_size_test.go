package fanout

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/proxy/budget"
)

// ofSize is an API server. The name of a namespace gives the approximate size of its list,
// in bytes.
type ofSize func(r *http.Request)

// errNoConnection is the error of a connection, with an address that clients must not see.
var errNoConnection = errors.New("dial tcp 192.0.2.1:6443: connection refused")

func (f ofSize) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	namespace := strings.Split(r.URL.Path, "/")[4]
	var size int
	if _, err := fmt.Sscanf(namespace, "n-%d", &size); err != nil {
		return nil, errNoConnection
	}
	w := httptest.NewRecorder()
	fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"<&>"},"data":{"x":%q}},{"of":%q}]}`, strings.Repeat("x", size), namespace)
	return w.Result(), nil
}

func bounded(transport http.RoundTripper) *Server {
	return &Server{Transport: transport, Base: &url.URL{Scheme: "http", Host: "nowhere"}, Memory: budget.New(budget.Limits{Small: 500, One: 2000, Each: 2600, All: 4600})}
}

// lists sends a list request and returns the answer.
func (s *Server) lists(t *testing.T, flowKey string, namespaces ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps", nil)
	if !s.Answer(w, r, Request{Identity: flowKey, FlowKey: flowKey, Prefix: "/api/v1", Resource: "configmaps", Visible: func() ([]string, <-chan struct{}) { return namespaces, nil }}) {
		t.Fatal("not answered")
	}
	return w
}

// TestBoundOfLists checks that a list that is too large is refused, as one answer or as
// many, and that no memory of it stays reserved.
func TestBoundOfLists(t *testing.T) {
	t.Parallel()
	s := bounded(ofSize(func(*http.Request) {}))
	if w := s.lists(t, "ann", "elsewhere"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), errNoConnection.Error()) {
		t.Errorf("where there is no answer: got %d %v %s", w.Code, w.Header(), w.Body)
	}
	for _, tc := range []struct {
		reason     string
		namespaces []string
		want       int
	}{
		{"a small one", []string{"n-10"}, http.StatusOK},
		{"two that fit together", []string{"n-500", "n-501"}, http.StatusOK},
		{"an answer that is too large", []string{"n-3000"}, http.StatusRequestEntityTooLarge},
		{"one among others", []string{"n-10", "n-3000", "n-20"}, http.StatusRequestEntityTooLarge},
		{"many that are too large together", []string{"n-600", "n-601", "n-602", "n-603"}, http.StatusRequestEntityTooLarge},
	} {
		for range 3 { // a list returns its reserved memory
			w := s.lists(t, "ann", tc.namespaces...)
			if w.Code != tc.want {
				t.Errorf("%s: want %d, got %d %s", tc.reason, tc.want, w.Code, w.Body)
			}
		}
		if taken := s.Memory.Taken(); taken != 0 {
			t.Fatalf("%s: %d bytes are still taken", tc.reason, taken)
		}
	}
}

// TestBoundOfManyLists checks that small lists are refused while other lists of the caller,
// or of all callers, hold too much memory.
func TestBoundOfManyLists(t *testing.T) {
	t.Parallel()
	const slow = "n-5"
	arrived, release := make(chan struct{}), make(chan struct{})
	s := bounded(ofSize(func(r *http.Request) {
		if strings.Contains(r.URL.Path, slow+"/") {
			arrived <- struct{}{}
			<-release
		}
	}))
	var open sync.WaitGroup
	begin := func(flowKey string) {
		open.Go(func() {
			if w := s.lists(t, flowKey, "n-1500", slow); w.Code != http.StatusOK {
				t.Errorf("a list that was being answered: got %d %s", w.Code, w.Body)
			}
		})
		<-arrived
	}
	begin("ann")
	for flowKey, want := range map[string]int{"ann": http.StatusTooManyRequests, "ben": http.StatusOK} {
		w := s.lists(t, flowKey, "n-1000")
		if w.Code != want || (want == http.StatusTooManyRequests) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("beside one of ann, one of %s: want %d, got %d %v %s", flowKey, want, w.Code, w.Header(), w.Body)
		}
	}
	begin("ben")
	if w := s.lists(t, "carl", "n-1000"); w.Code != http.StatusTooManyRequests {
		t.Errorf("while all hold as much as they may: got %d %s", w.Code, w.Body)
	}
	if w := s.lists(t, "carl", "n-20"); w.Code != http.StatusOK {
		t.Errorf("a small one meanwhile: got %d %s", w.Code, w.Body)
	}
	close(release)
	open.Wait()
	if w := s.lists(t, "carl", "n-1000"); w.Code != http.StatusOK || s.Memory.Taken() != 0 {
		t.Errorf("after that: got %d, and %d bytes are taken", w.Code, s.Memory.Taken())
	}
}

// TestTextOfList checks that the output of head and writeMembers is the JSON of the list.
func TestTextOfList(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, want string
		of           collection
	}{
		{"items", `{"kind":"L","apiVersion":"v1","metadata":{},"items":[1,{"a":"<"}]}`, collection{Kind: "L", APIVersion: "v1", Items: []json.RawMessage{[]byte("1"), []byte(`{"a":"<"}`)}}},
		{"no items", `{"kind":"L","apiVersion":"v1","metadata":{},"items":[]}`, collection{Kind: "L", APIVersion: "v1", Items: []json.RawMessage{}}},
		{"rows", `{"kind":"T","apiVersion":"v1","metadata":{},"columnDefinitions":[2],"rows":[3]}`, collection{Kind: "T", APIVersion: "v1", Columns: []byte("[2]"), Rows: []json.RawMessage{[]byte("3")}}},
	} {
		head, err := tc.of.head()
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.NewBuffer(head)
		w := bufio.NewWriter(got)
		tc.of.writeMembers(w)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		var want, have any
		if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got.Bytes(), &have); err != nil {
			t.Fatalf("%s: %v: %s", tc.reason, err, got.String())
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestRestIsGone checks that a client lists again if the namespaces of the rest of a list are gone.
func TestRestIsGone(t *testing.T) {
	t.Parallel()
	s := bounded(ofSize(func(*http.Request) {}))
	w := httptest.NewRecorder()
	next := pageToken{"n-9", "", "7"}.encode()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps?limit=5&continue="+next, nil)
	s.Answer(w, r, Request{Prefix: "/api/v1", Resource: "configmaps", Visible: func() ([]string, <-chan struct{}) { return []string{"n-1"}, nil }})
	if w.Code != http.StatusGone || !strings.Contains(w.Body.String(), "Expired") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

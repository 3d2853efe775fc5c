package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// backend returns a fake API server: it upgrades and echoes upgrade requests, and answers
// all other requests with a description of the request.
func backend(t *testing.T) *httptest.Server {
	t.Helper()
	b := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == selfReviewPath {
			review := &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "caller"}}}
			writeObject(w, runtime.ContentTypeProtobuf, http.StatusCreated, authenticationv1.SchemeGroupVersion, review)
			return
		}
		if r.Header.Get("Upgrade") == "" {
			local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			_ = json.NewEncoder(w).Encode(map[string]any{"uri": r.RequestURI, "header": r.Header, "at": local.String()})
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Authorization: %s\r\n\r\n", r.Header.Get("Upgrade"), r.Header.Get("Authorization"))
		_, _ = io.Copy(conn, buffered)
	}))
	t.Cleanup(b.Close)
	return b
}

func before(t *testing.T, b *httptest.Server, o Options) *setup {
	t.Helper()
	o.Config = &rest.Config{Host: b.URL, BearerToken: "the-proxys-own", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &setup{proxy: p, server: serve(p)}
	t.Cleanup(s.server.Close)
	return s
}

// TestUpgrade checks that exec and port-forward become bidirectional connections with the
// caller's token and no other.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := before(t, backend(t), Options{})
	for _, tc := range []struct{ reason, target, protocol string }{
		{"exec by SPDY", "/api/v1/namespaces/a/pods/x/exec?command=sh", "SPDY/3.1"},
		{"port-forward by websocket", "/api/v1/namespaces/a/pods/x/portforward", "websocket"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			conn := s.dial(t)
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer callers\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", tc.target, tc.protocol)
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("X-Authorization") != "Bearer callers" {
				t.Fatalf("got %s %v", response.Status, response.Header)
			}
			for _, word := range []string{"ping\n", "pong\n"} {
				fmt.Fprint(conn, word)
				if got, err := reader.ReadString('\n'); err != nil || got != word {
					t.Fatalf("want %q back, got %q, %v", word, got, err)
				}
			}
		})
	}
}

// TestUntouched checks that the API server gets the caller's request with the caller's
// token, complete and without headers of the proxy.
func TestUntouched(t *testing.T) {
	t.Parallel()
	s := before(t, backend(t), Options{})
	for _, target := range []string{
		"/api/v1/namespaces/a/services/x/proxy/%2e%2e/a%2Fb//c?x=1;y=%zz&z", "/api/v1//pods", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Adiscovery",
	} {
		code, answer := s.line(t, "GET "+target+" HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer callers\r\nX-Remote-User: admin\r\nX-Remote-Extra-A: b\r\nX-Forwarded-For: 10.0.0.1\r\nConnection: close\r\n\r\n")
		if code != http.StatusOK || !strings.Contains(answer, fmt.Sprintf(`"uri":%q`, strings.ReplaceAll(target, "&", `\u0026`))) && !strings.Contains(answer, strings.ReplaceAll(target, "&", `\u0026`)) {
			t.Errorf("%s: got %s", target, answer)
		}
		if strings.Contains(answer, "the-proxys-own") || !strings.Contains(answer, "Bearer callers") || strings.Contains(answer, "X-Remote") || strings.Contains(answer, "X-Forwarded") {
			t.Errorf("%s: the API server got %s", target, answer)
		}
	}
}

// TestNoAPIServer checks that the proxy reports an unreachable API server and answers no
// request by itself.
func TestNoAPIServer(t *testing.T) {
	t.Parallel()
	b := backend(t)
	s := before(t, b, Options{})
	b.Close()
	for _, path := range []string{"/api/v1/namespaces", "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods?watch=1"} {
		code, body, _ := s.raw(t, s.request(t, http.MethodGet, path, "callers"))
		if code != http.StatusServiceUnavailable || !strings.Contains(body, `"kind":"Status"`) {
			t.Errorf("%s: got %d %s", path, code, body)
		}
	}
	if err := s.proxy.Ready(t.Context()); err == nil {
		t.Error("the proxy says that it is ready")
	}
}

// TestReview checks that a review allows only the requests that the proxy answers for all
// users.
func TestReview(t *testing.T) {
	t.Parallel()
	p, err := New(Options{Config: &rest.Config{Host: "https://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason string
		asked  *authorizationv1.ResourceAttributes
		want   bool
	}{
		{"nothing", nil, false},
		{"a list of namespaces", &authorizationv1.ResourceAttributes{Verb: "list", Resource: "namespaces"}, true},
		{"a watch of Tenants", &authorizationv1.ResourceAttributes{Verb: "watch", Group: "tenure.dev", Resource: "tenants"}, true},
		{"another group", &authorizationv1.ResourceAttributes{Verb: "list", Group: "x", Resource: "namespaces"}, false},
		{"everything", &authorizationv1.ResourceAttributes{Verb: "*", Resource: "namespaces"}, false},
		{"every kind", &authorizationv1.ResourceAttributes{Verb: "list", Resource: "*"}, false},
		{"in a namespace, as kubectl asks", &authorizationv1.ResourceAttributes{Verb: "list", Resource: "namespaces", Namespace: "a"}, true},
		{"one", &authorizationv1.ResourceAttributes{Verb: "list", Resource: "namespaces", Name: "a"}, false},
		{"a part", &authorizationv1.ResourceAttributes{Verb: "list", Resource: "namespaces", Subresource: "status"}, false},
	} {
		if got := p.answers(tc.asked); got != tc.want {
			t.Errorf("%s: want %v, got %v", tc.reason, tc.want, got)
		}
	}
}

// TestZeroSelection checks that the zero Selection of a Rule selects nothing.
func TestZeroSelection(t *testing.T) {
	t.Parallel()
	query := map[string][]string{}
	if err := narrow(query, Selection{}); err != nil {
		t.Fatal(err)
	}
	if got := query["labelSelector"]; len(got) != 1 || got[0] != emptySelector.String() {
		t.Errorf("the zero selection selects %v", got)
	}
}

// TestMetadataOfImpossibleName checks that a name that the API server refuses is no object, so that
// the caller gets the API server's own refusal.
func TestMetadataOfImpossibleName(t *testing.T) {
	t.Parallel()
	code := http.StatusBadRequest
	s := facing(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }, Options{})
	for _, tc := range []struct {
		code int
		fail bool
	}{{http.StatusBadRequest, false}, {http.StatusNotFound, false}, {http.StatusForbidden, true}, {http.StatusInternalServerError, true}} {
		code = tc.code
		object, err := s.proxy.metadata(t.Context(), "/api/v1/nodes/..", s.proxy.memory.Open("ann"))
		if object != nil || (err != nil) != tc.fail {
			t.Errorf("%d: got %v, %v", tc.code, object, err)
		}
	}
}

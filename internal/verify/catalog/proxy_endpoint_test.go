package catalog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// street is a world in which every address leads to one server.
type street struct{ *httptest.Server }

func (street) Handle(string, string, http.Handler) {}
func (street) Forget(string, string)               {}
func (s street) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
	}}}
}

// proxied is a tenant of a fleet whose proxy is a handler, and the client's side of
// it.
func proxied(t *testing.T, e *Scenario, handler http.HandlerFunc) *proxyClient {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	e.outside = street{s}
	e.proxyEndpoint = &proxyEndpoint{address: "example.com:9001", trusted: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	c, err := e.newProxyClient(e.Account, "theirs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

func TestProxyAddress(t *testing.T) {
	t.Parallel()
	service := func(labels map[string]string, ports ...int32) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "gitops", Name: "tenure-proxy", Labels: labels}}
		for _, p := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: p})
		}
		return s
	}
	trust := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "gitops", Name: "x", Labels: proxyLabels}, Data: map[string]string{"ca.crt": "PEM"}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "else", Name: "x", Labels: proxyLabels}, Data: map[string]string{"ca.crt": "not theirs"}}
	for name, tc := range map[string]struct {
		reason           string
		objects          []client.Object
		address, trusted string
	}{
		"none":    {reason: "a fleet without a proxy has no address"},
		"there":   {"the Service's address, and the authority beside it", []client.Object{service(proxyLabels, 9001, 8080), trust, other}, "tenure-proxy.gitops.svc:9001", "PEM"},
		"manager": {"another part of Tenure is no proxy", []client.Object{service(map[string]string{"app.kubernetes.io/name": "tenure", "app.kubernetes.io/component": "manager"}, 443), trust}, "", ""},
		"no port": {"a Service without a port leads nowhere", []client.Object{service(proxyLabels)}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, trusted, err := ProxyAddress(t.Context(), newFakeEnv(interceptor.Funcs{}, tc.objects...).Admin)
			if err != nil || address != tc.address || string(trusted) != tc.trusted {
				t.Errorf("%s: got %q, %q, %v", tc.reason, address, trusted, err)
			}
		})
	}
}

// TestRawRequestOnTheWire checks that the proxy receives a request exactly as the attack writes it.
func TestRawRequestOnTheWire(t *testing.T) {
	t.Parallel()
	type seen struct {
		Method, Target, Host, Body string
		Header                     http.Header
	}
	for name, tc := range map[string]struct {
		reason string
		knock  rawRequest
		want   seen
	}{
		"plain":      {"a GET with the token", rawRequest{path: "/api?x=1", token: "t"}, seen{"GET", "/api?x=1", "example.com:9001", "", http.Header{"Authorization": {"Bearer t"}}}},
		"nobody":     {"no token is no header", rawRequest{path: "/"}, seen{"GET", "/", "example.com:9001", "", http.Header{}}},
		"body":       {"a POST with JSON", rawRequest{method: "POST", path: "/", body: "{}"}, seen{"POST", "/", "example.com:9001", "{}", http.Header{"Content-Type": {"application/json"}}}},
		"path":       {"nobody tidies the path", rawRequest{path: "/a/../b//c%2fd;e"}, seen{"GET", "/a/../b//c%2fd;e", "example.com:9001", "", http.Header{}}},
		"whole":      {"a whole address", rawRequest{path: "//else.example.com/x"}, seen{"GET", "https://else.example.com/x", "else.example.com", "", http.Header{}}},
		"host":       {"another host", rawRequest{path: "/", header: [][2]string{{"Host", "else"}}}, seen{"GET", "/", "else", "", http.Header{}}},
		"hops":       {"the connection's own header", rawRequest{path: "/", header: [][2]string{{"Connection", "X-Y"}, {"X-Y", "z"}}}, seen{"GET", "/", "example.com:9001", "", http.Header{"Connection": {"X-Y"}, "X-Y": {"z"}}}},
		"repeated":   {"a header twice, in order", rawRequest{path: "/", header: [][2]string{{"X", "1"}, {"X", "2"}}}, seen{"GET", "/", "example.com:9001", "", http.Header{"X": {"1", "2"}}}},
		"two tokens": {"a token beside another", rawRequest{path: "/", token: "t", header: [][2]string{{"Authorization", "Bearer u"}}}, seen{"GET", "/", "example.com:9001", "", http.Header{"Authorization": {"Bearer t", "Bearer u"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got seen
			c := proxied(t, newFakeEnv(interceptor.Funcs{}), func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Header.Del("User-Agent")
				r.Header.Del("Content-Length")
				got = seen{r.Method, r.RequestURI, r.Host, string(body), r.Header}
			})
			if _, err := c.send(t.Context(), tc.knock); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestJudgeRawRequest(t *testing.T) {
	t.Parallel()
	status := func(message string) []byte { return []byte(`{"kind":"Status","message":"` + message + `"}`) }
	always := func(is bool, err error) func(context.Context, rawResponse) (bool, error) {
		return func(context.Context, rawResponse) (bool, error) { return is, err }
	}
	for name, tc := range map[string]struct {
		reason  string
		breach  func(context.Context, rawResponse) (bool, error)
		reply   rawResponse
		err     error
		outcome Outcome
		control string
	}{
		"answered":         {"what must not be answered was", nil, rawResponse{200, nil}, nil, GotThrough, ""},
		"upgraded":         {"nor become another protocol", nil, rawResponse{101, nil}, nil, GotThrough, ""},
		"breach":           {"an answer with another's", always(true, nil), rawResponse{200, nil}, nil, GotThrough, ""},
		"own":              {"an answer with the caller's own", always(false, nil), rawResponse{200, nil}, nil, Stopped, "proxy"},
		"unreadable":       {"an answer that cannot be judged", always(false, errors.New("no JSON")), rawResponse{200, nil}, nil, NotProven, ""},
		"rbac":             {"a refusal in the words of RBAC", nil, rawResponse{403, status("User x cannot list resource secrets")}, nil, Stopped, "RBAC"},
		"unauthorized":     {"a refusal of the proxy's", nil, rawResponse{401, status("Unauthorized")}, nil, Stopped, "proxy"},
		"refused a breach": {"a refusal shows nothing", always(true, nil), rawResponse{403, status("no")}, nil, Stopped, "proxy"},
		"moved":            {"another address is no answer", nil, rawResponse{301, nil}, nil, Stopped, "proxy"},
		"busy":             {"too many requests is no refusal", nil, rawResponse{429, status("later")}, nil, NotProven, ""},
		"broken":           {"nor is an outage", nil, rawResponse{503, status("cannot ask resource")}, nil, NotProven, ""},
		"connection":       {"nor is a connection that broke", nil, rawResponse{}, errors.New("connection reset"), NotProven, ""},
		"certificate":      {"a certificate that is not taken is refused", nil, rawResponse{}, errors.New("remote error: tls: unknown certificate authority"), Stopped, "proxy"},
		"not theirs":       {"a server that is not the proxy proves nothing", nil, rawResponse{}, &tls.CertificateVerificationError{Err: errors.New("unknown")}, NotProven, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := rawRequest{what: "x", breach: tc.breach}.judge(t.Context(), tc.reply, tc.err)
			if got.Outcome != tc.outcome || got.Control != tc.control {
				t.Errorf("%s: got %q by %q, want %q by %q", tc.reason, got.Outcome, got.Control, tc.outcome, tc.control)
			}
		})
	}
}

// reviewed answers reviews as the tenant's account, and all else as a handler does.
func reviewed(user string, handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != reviewPath {
			handler(w, r)
			return
		}
		fmt.Fprintf(w, `{"status":{"userInfo":{"username":%q,"groups":["system:authenticated"]}}}`, user)
	}
}

func TestOnProxy(t *testing.T) {
	t.Parallel()
	team := "system:serviceaccount:team:team"
	empty := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"items":[]}`) }
	for name, tc := range map[string]struct {
		reason  string
		handler http.HandlerFunc // nil is no proxy
		outcome Outcome
		control string
	}{
		"none":     {"a proxy that is not there is no door", nil, Stopped, notInstalled},
		"works":    {"a proxy that answers with nothing of others", reviewed(team, empty), Stopped, "proxy"},
		"mistaken": {"a proxy that takes the tenant for somebody else proves nothing", reviewed("somebody", empty), NotProven, ""},
		"closed":   {"a proxy that refuses the tenant everything proves nothing", reviewed(team, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }), NotProven, ""},
		"down":     {"a proxy that does not work proves nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, NotProven, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "team"}})
			if tc.handler != nil {
				proxied(t, e, tc.handler)
			}
			f := onProxy(func(_ context.Context, c *proxyClient) ([]rawRequest, error) {
				return []rawRequest{{what: "x", path: namespacesPath, token: c.token, breach: c.showsForeign("", "namespaces")}}, nil
			})(t.Context(), e)
			if f.Outcome != tc.outcome || f.Control != tc.control {
				t.Errorf("%s: got %q by %q (%s%s)", tc.reason, f.Outcome, f.Control, f.Evidence, f.Reason)
			}
		})
	}
}

func TestShowsForeign(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, resource, items string
		may                     bool
		want                    bool
	}{
		"nothing":           {reason: "an empty list", resource: "pods"},
		"own":               {reason: "the tenant's own", resource: "pods", items: `{"metadata":{"namespace":"team"}}`},
		"foreign":           {"somebody else's", "pods", `{"metadata":{"namespace":"team"}},{"metadata":{"namespace":"other"}}`, false, true},
		"allowed":           {"what the API server shows as well", "pods", `{"metadata":{"namespace":"shared"}}`, true, false},
		"victim":            {"the victim's, whoever allows it", "secrets", `{"metadata":{"namespace":"tenure-canary"}}`, true, true},
		"own namespace":     {reason: "the tenant's own namespace", resource: "namespaces", items: `{"metadata":{"name":"team"}}`},
		"foreign namespace": {"somebody else's namespace", "namespaces", `{"metadata":{"name":"other"}}`, false, true},
		"own Tenant":        {reason: "the tenant's own Tenant", resource: "tenants", items: `{"metadata":{"name":"team"}}`},
		"I12's Tenant":      {reason: "the Tenant that another attack makes, and is about", resource: "tenants", items: `{"metadata":{"name":"tenure-attack-i12-proxy"}}`},
		"foreign Tenant":    {"somebody else's Tenant", "tenants", `{"metadata":{"name":"other"}}`, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				o.(*authorizationv1.SelfSubjectAccessReview).Status.Allowed = tc.may
				return nil
			}})
			c := &proxyClient{scenario: e, who: e.Account}
			got, err := c.showsForeign("", tc.resource)(t.Context(), rawResponse{200, []byte(`{"items":[` + tc.items + `]}`)})
			if err != nil || got != tc.want {
				t.Errorf("%s: got %v, %v", tc.reason, got, err)
			}
		})
	}
	if _, err := (&proxyClient{}).showsForeign("", "pods")(t.Context(), rawResponse{200, []byte("\x00")}); err == nil {
		t.Error("what is no list was judged")
	}
}

func TestShows(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{"": false, "1-2": false, "x1-23y": true, "k8s\x00\x12\x041-23": true} {
		if got, _ := shows([]types.UID{"9", "1-23"})(t.Context(), rawResponse{200, []byte(body)}); got != want {
			t.Errorf("%q: got %v", body, got)
		}
	}
}

// endless is a watch that never ends.
type endless struct{ head io.Reader }

func (e endless) Read(b []byte) (int, error) {
	if n, err := e.head.Read(b); err == nil {
		return n, nil
	}
	return copy(b, "."), nil
}

func TestReadReply(t *testing.T) {
	t.Parallel()
	watch := strings.Repeat("x", 32<<10-5) + initialEvents
	if got, err := readRawResponse(endless{strings.NewReader(watch)}); err != nil || string(got) != watch {
		t.Errorf("a watch was read to %d bytes, want %d: %v", len(got), len(watch), err)
	}
	if got, err := readRawResponse(strings.NewReader("all")); err != nil || string(got) != "all" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := readRawResponse(endless{strings.NewReader("")}); err == nil {
		t.Error("an answer without an end was read")
	}
}

func FuzzMistakable(f *testing.F) {
	f.Add("home", "apps", "dev-team")
	f.Add("home", "a-b-c", "d")
	f.Add("home", "a", "b.c")
	f.Fuzz(func(t *testing.T, home, namespace, name string) {
		if namespace == "" || name == "" || home == namespace {
			return // no account has such a name
		}
		a := discovery.Account{Namespace: namespace, Name: name}
		all := lookalikeSubjects(home, a)
		for _, s := range all {
			if s.Namespace == a.Namespace && s.Name == a.Name {
				t.Errorf("%s is itself", a)
			}
			alike := s.Namespace == home && s.Name == a.Name || s.Namespace+s.Name == a.Namespace+a.Name || s.Namespace+"-"+s.Name == a.Namespace+"-"+a.Name
			if !alike || s.Namespace == "" || s.Name == "" {
				t.Errorf("%s/%s does not read like %s", s.Namespace, s.Name, a)
			}
		}
		if slices.Contains([]string{"apps", "a-b-c"}, namespace) && len(all) < 2 {
			t.Errorf("%s has no account that reads the same: %v", a, all)
		}
	})
}

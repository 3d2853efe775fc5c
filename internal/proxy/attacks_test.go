package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/process/pki"
	"github.com/tenure-dev/tenure/internal/proxy/fanout"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// everything is a Rule that shows all namespaces to all users.
type everything struct{}

func (everything) Resource() schema.GroupResource { return corev1.Resource("namespaces") }
func (everything) Select(user.Info) Selection     { return Selection{Labels: labels.Everything()} }

// careless is a Rule that identifies service accounts by a text that is not unique.
type careless struct {
	*authorizationCache
	text func(username string) string
}

func (careless) Resource() schema.GroupResource { return corev1.Resource("namespaces") }

func (c careless) Select(who user.Info) Selection {
	var owned []string
	for _, o := range c.tenants.GetStore().List() {
		t, ok := o.(*v1alpha1.Tenant)
		if ok && slices.ContainsFunc(t.Spec.Owners, func(o v1alpha1.Owner) bool {
			return o.Kind == rbacv1.ServiceAccountKind && c.text("system:serviceaccount:"+o.Namespace+":"+o.Name) == c.text(who.GetName())
		}) {
			owned = append(owned, t.Name)
		}
	}
	return Selection{Labels: oneOf(v1alpha1.LabelTenant, owned)}
}

// withoutCheck returns a function that removes one check of requests.
func withoutCheck(name string) func(*testing.T, *Proxy) {
	return func(t *testing.T, p *Proxy) {
		before := len(p.checks)
		p.checks = slices.DeleteFunc(p.checks, func(c requestCheck) bool { return c.name == name })
		if len(p.checks) != before-1 {
			t.Fatalf("there is no check %s", name)
		}
	}
}

// withRule returns a function that replaces the rule of namespaces.
func withRule(made func(*Proxy) Rule) func(*testing.T, *Proxy) {
	return func(_ *testing.T, p *Proxy) { p.rules[corev1.Resource("namespaces")] = made(p) }
}

// powerful gives the transport for callers' requests the admin's credentials.
func powerful(t *testing.T, p *Proxy) {
	t.Helper()
	way, err := newTransport(shared.rest, false)
	if err != nil {
		t.Fatal(err)
	}
	p.transports.short = way
}

// unknown returns a function that makes every token the token of one user.
func unknown(who user.Info) func(*testing.T, *Proxy) {
	return func(_ *testing.T, p *Proxy) {
		p.reviews.tokens = authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: who}, true, nil
		})
	}
}

func together(a, b func(*testing.T, *Proxy)) func(*testing.T, *Proxy) {
	return func(t *testing.T, p *Proxy) {
		t.Helper()
		a(t, p)
		b(t, p)
	}
}

// TestAttacks checks that each attack of the catalog on a proxy is stopped, and that it
// succeeds without the check that stops it.
func TestAttacks(t *testing.T) {
	t.Parallel()
	s, owner, stranger, lender := secure(t)
	apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: secure}}
---
{apiVersion: v1, kind: Secret, metadata: {name: hoard, namespace: secure-victim}, stringData: {x: buried}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: hoard, namespace: secure-victim}}`)
	namesake, collider := account(t, "secure-victim", "owner"), account(t, "secure", "a-owner")
	const list = "/api/v1/namespaces"
	nobody := &user.DefaultInfo{Groups: []string{"secure-team"}}
	keep := func(*testing.T, *Proxy) {}
	for _, tc := range []struct {
		row, attack, control string
		method, path, token  string
		header               [][2]string
		through              string // text in the answer if the attack succeeds
		// given prepares both runs, and without removes the check from the second run.
		given, without func(*testing.T, *Proxy)
	}{
		{
			row: "I8", attack: "a list as another account", control: "the right to impersonate",
			path: list, token: stranger, header: [][2]string{{"Impersonate-User", ownerName}}, through: `"name":"secure-a"`,
			without: func(_ *testing.T, p *Proxy) {
				p.mayImpersonate = func(context.Context, string, user.Info, *impersonation) error { return nil }
			},
		}, {
			row: "I8", attack: "a token for another account", control: "the proxy lends no credentials",
			method: http.MethodPost, path: list + "/secure-a/serviceaccounts/owner/token", token: stranger, through: `"token":"ey`,
			without: powerful,
		}, {
			row: "I12", attack: "an account of the same name", control: "accounts are a namespace and a name",
			path: list, token: namesake, through: `"name":"secure-a"`,
			without: withRule(func(p *Proxy) Rule {
				return careless{p.cache, func(name string) string { return name[strings.LastIndex(name, ":"):] }}
			}),
		}, {
			row: "I12", attack: "an account that reads the same", control: "accounts are never joined to one text",
			path: list, token: collider, through: `"name":"secure-a"`,
			without: withRule(func(p *Proxy) Rule {
				return careless{p.cache, func(name string) string { return strings.ReplaceAll(name, ":", "-") }}
			}),
		}, {
			row: "I14", attack: "nobody", control: "exactly one credential, of somebody",
			path: "/version", through: `"gitVersion"`,
			without: together(withoutCheck("credential"), unknown(&user.DefaultInfo{Name: "x"})),
		}, {
			row: "I14", attack: "an identity without a name", control: "empty identities are refused",
			path: list, token: stranger, through: `"name":"secure-a"`, given: unknown(nobody),
			without: func(_ *testing.T, p *Proxy) {
				p.reviews.accept = func(who user.Info) (user.Info, error) { return who, nil }
			},
		}, {
			row: "I14", attack: "an impersonation that is lost", control: "impersonation headers are read or refused",
			path: list, token: owner, header: [][2]string{{"Impersonate-User", "somebody-with-less"}}, through: `"name":"secure-a"`,
			without: withoutCheck("impersonation"),
		}, {
			row: "I14", attack: "an impersonation that the connection takes off", control: "Connection names no headers",
			path: list + "/secure-a/pods", token: lender, header: [][2]string{{"Impersonate-User", "secure-alice"}, {"Connection", "Impersonate-User"}},
			through: `secure-a:lender\" cannot list`, without: withoutCheck("hops"),
		}, {
			row: "I14", attack: "masters as the first group", control: "masters are refused",
			path: list, token: lender, header: [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Group", "system:masters"}, {"Impersonate-Group", "secure-team"}},
			through: `"name":"kube-system"`, without: withoutCheck("masters"),
		}, {
			row: "I14", attack: "masters as the last group", control: "masters are refused",
			path: list, token: lender, header: [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Group", "secure-team"}, {"Impersonate-Group", "system:masters"}},
			through: `"name":"kube-system"`, without: withoutCheck("masters"),
		}, {
			row: "W2", attack: "the namespaces of others", control: "the rule of namespaces",
			path: list, token: stranger, through: `"name":"secure-victim"`,
			without: withRule(func(*Proxy) Rule { return everything{} }),
		}, {
			row: "W2", attack: "a Secret of another tenant", control: "the proxy lends no credentials",
			path: list + "/secure-victim/secrets/hoard", token: owner, through: "YnVyaWVk",
			without: powerful,
		},
	} {
		t.Run(tc.row+" "+tc.attack, func(t *testing.T) {
			t.Parallel()
			attack := func(take func(*testing.T, *Proxy)) (int, string) {
				p := newProxy(t, s.rest, Options{})
				if tc.given != nil {
					tc.given(t, p)
				}
				take(t, p)
				one := &setup{proxy: p, server: serve(p)}
				t.Cleanup(one.server.Close)
				r := one.request(t, tc.method, tc.path, tc.token)
				if tc.method == http.MethodPost {
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), 2
					r.Header.Set("Content-Type", "application/json")
				}
				for _, h := range tc.header {
					r.Header.Add(h[0], h[1])
				}
				code, body, _ := one.raw(t, r)
				return code, body
			}
			if code, body := attack(keep); code == 0 || strings.Contains(body, tc.through) {
				t.Errorf("the attack gets through: %d %s", code, body)
			}
			if code, body := attack(tc.without); !strings.Contains(body, tc.through) {
				t.Errorf("the attack is stopped without its control, %s: %d %s", tc.control, code, body)
			}
		})
	}
}

// TestAttackAcross checks W2 for a list in all namespaces: if the proxy asks for a
// namespace too many, the API server refuses it, because the proxy asks with the caller's
// token.
func TestAttackAcross(t *testing.T) {
	t.Parallel()
	s, owner, _, _ := secure(t)
	for _, namespace := range []string{"secure-a", "secure-victim"} {
		if err := s.admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: objectMeta(namespace, "across")}); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		reason  string
		without func(*testing.T, *Proxy)
		want    bool
	}{
		{"as the caller", func(*testing.T, *Proxy) {}, false},
		{"as somebody who may do everything", powerful, true},
	} {
		p, err := New(Options{Config: s.rest})
		if err != nil {
			t.Fatal(err)
		}
		tc.without(t, p)
		w, r := httptest.NewRecorder(), s.request(t, http.MethodGet, "/api/v1/configmaps", owner)
		c, err := parseRequest(r, p.checks)
		if err != nil {
			t.Fatal(err)
		}
		p.fanout.Answer(w, r.WithContext(withCall(r.Context(), c)), fanout.Request{Identity: "owner", Prefix: "/api/v1", Resource: "configmaps", Visible: func() ([]string, <-chan struct{}) {
			return []string{"secure-a", "secure-victim"}, nil // more than the caller may see
		}})
		if got := strings.Contains(w.Body.String(), `"namespace":"secure-victim"`); got != tc.want {
			t.Errorf("%s: want the other tenant's objects %v, got %d %s", tc.reason, tc.want, w.Code, w.Body)
		}
	}
}

// TestAttackElsewhere checks I13: no request leads the proxy, or the caller's token, to a
// server other than the configured one, and that server has to prove its identity.
func TestAttackElsewhere(t *testing.T) {
	t.Parallel()
	elsewhere := backend(t)
	address := elsewhere.Listener.Addr().String()
	authority, err := pki.NewAuthority("the API server's")
	if err != nil {
		t.Fatal(err)
	}
	trusting := rest.TLSClientConfig{Insecure: true}
	for _, tc := range []struct {
		reason, target, host string
		tls                  rest.TLSClientConfig
		rewrite              func(*httputil.ProxyRequest) // nil means the proxy's own
		want                 bool                         // whether the token arrives there
	}{
		{"an address in the request", "https://" + address + "/version", address, trusting, nil, false},
		{"an address in the request, to a proxy that keeps it", "https://" + address + "/version", address, trusting, func(pr *httputil.ProxyRequest) { pr.Out.URL.Scheme = "https" }, true},
		{"a host", "/version", address, trusting, nil, false},
		{"a host, to a proxy that keeps it", "/version", address, trusting, func(pr *httputil.ProxyRequest) { pr.Out.URL.Scheme, pr.Out.URL.Host = "https", pr.In.Host }, true},
		{"a server of another authority", "/version", "", rest.TLSClientConfig{CAData: authority.CertPEM}, nil, false},
		{"a server of another authority, to a proxy that does not look", "/version", "", trusting, nil, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			server := elsewhere
			if tc.host != "" {
				server = backend(t)
			}
			p, err := New(Options{Config: &rest.Config{Host: server.URL, TLSClientConfig: tc.tls}})
			if err != nil {
				t.Fatal(err)
			}
			unknown(&user.DefaultInfo{Name: "caller"})(t, p)
			if tc.rewrite != nil {
				p.reverseProxy.Rewrite = tc.rewrite
			}
			s := &setup{proxy: p, server: serve(p)}
			t.Cleanup(s.server.Close)
			code, answer := s.line(t, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer callers\r\nConnection: close\r\n\r\n", tc.target, tc.host))
			if got := strings.Contains(answer, `"at":"`+address); got != tc.want {
				t.Errorf("want the token there %v, got %d %s", tc.want, code, answer)
			}
		})
	}
}

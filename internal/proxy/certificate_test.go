package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/process/pki"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestClientCertificates checks that a client certificate identifies a user if the proxy
// may impersonate the user.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("cert-a", "cert")+tenant("cert", "{kind: User, name: cert-alice}", "{kind: User, name: cert-bob}")+
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: cert}, rules: [
  {apiGroups: [""], resources: [users], resourceNames: [cert-alice], verbs: [impersonate]},
  {apiGroups: [""], resources: [groups], resourceNames: ["system:authenticated"], verbs: [impersonate]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: cert}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cert}, subjects: [{kind: ServiceAccount, name: cert-proxy, namespace: cert-a}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: cert-proxy}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-proxy}, subjects: [{kind: ServiceAccount, name: cert-proxy, namespace: cert-a}]}`)
	// The proxy uses a token: as an impersonated user it could not impersonate again.
	config := *s.rest
	config.CertData, config.KeyData, config.CertFile, config.KeyFile = nil, nil, "", ""
	config.BearerToken = account(t, "cert-a", "cert-proxy")
	p, err := New(Options{Config: &config, ClientCertificates: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	authority, err := pki.NewAuthority("clients")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(p)
	server.TLS = &tls.Config{ClientCAs: authority.Pool(), ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	ask := func(request pki.Request, path string, header ...string) (int, string) {
		pair, err := authority.Issue(request)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}}}
		defer transport.CloseIdleConnections()
		response, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		return response.StatusCode, readAll(response)
	}
	alice := pki.Request{CommonName: "cert-alice"}
	testwait.For(t, "the proxy to have its rights", patience, func() (bool, string) {
		code, body := ask(alice, "/api/v1/namespaces/cert-a/pods")
		return code == http.StatusForbidden && strings.Contains(body, `User \"cert-alice\" cannot list resource \"pods\"`), body
	})
	for _, tc := range []struct {
		reason, path string
		who          pki.Request
		header       []string
		code         int
		want         string
	}{
		{"who is answered", "/api/v1/namespaces", alice, nil, 200, `"name":"cert-a"`},
		{"who the proxy may not impersonate, passed on", "/api/v1/namespaces/cert-a/pods", pki.Request{CommonName: "cert-bob"}, nil, 403, "cannot impersonate"},
		{"nobody", "/api/v1/namespaces", pki.Request{Organizations: []string{"x"}}, nil, 401, ""},
		{"masters", "/api/v1/namespaces", pki.Request{CommonName: "cert-alice", Organizations: []string{"x", "system:masters"}}, nil, 403, "system:masters"},
		{"another impersonation", "/api/v1/namespaces/cert-a/pods", alice, []string{"Impersonate-User", "cert-bob"}, 403, "use a token"},
		{"a token as well", "/api/v1/namespaces", alice, []string{"Authorization", "Bearer x"}, 400, "more than one credential"},
	} {
		if code, body := ask(tc.who, tc.path, tc.header...); code != tc.code || !strings.Contains(body, tc.want) {
			t.Errorf("%s: want %d with %q, got %d %s", tc.reason, tc.code, tc.want, code, body)
		}
	}
}

// TestInformer checks that an informer sees every change while its connections are cut and
// its visible namespaces change.
func TestInformer(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("inform-a", "inform")+tenant("inform", accountOwner("inform-a", "owner")))
	config := s.as(account(t, "inform-a", "owner"))
	sees(t, newClient(t, config), "inform-a")
	cut := httptest.NewUnstartedServer(s.proxy)
	cut.StartTLS()
	t.Cleanup(cut.Close)
	config.Host = cut.URL
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	seen := informOf(t, informers.NewSharedInformerFactory(clients, 0).Core().V1().Namespaces().Informer())
	for i := range 60 {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("inform-%02d", i), Labels: map[string]string{"tenure.dev/tenant": "inform"}}}
		if err := s.admin.Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := s.admin.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"tenure.dev/tenant":"somebody"}}}`))); err != nil {
				t.Fatal(err)
			}
		}
		if i%6 == 5 {
			cut.CloseClientConnections()
		}
		if i == 30 {
			apply(t, namespace("inform-late", "inform-late")+tenant("inform-late", accountOwner("inform-a", "owner")))
		}
	}
	testwait.For(t, "the informer to have what there is", patience, func() (bool, string) {
		got, want := seen(), strings.Split(list(t, newClient(t, s.as(config.BearerToken))), " ")
		return len(got) == 42 && strings.Join(got, " ") == strings.Join(want, " "), fmt.Sprint(len(got), " of ", len(want), ": ", got)
	})
}

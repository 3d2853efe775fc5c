package webhook

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-dev/tenure/internal/process/pki"
)

// The webhook accepts a connection with the API server's certificate. It refuses a
// certificate with another name, a certificate of another authority, and none.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	authority, err := pki.NewAuthority("cluster")
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, authority.CertPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	option, err := clientCertificates(file, "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	pair, err := authority.Issue(pki.Request{CommonName: "webhook"})
	if err != nil {
		t.Fatal(err)
	}
	served, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{served}}
	option(server.TLS)
	server.StartTLS()
	t.Cleanup(server.Close)
	for _, tc := range []struct {
		who       string
		authority *pki.Authority
		request   pki.Request
		accepted  bool
	}{
		{"the API server", authority, pki.Request{CommonName: "kube-apiserver"}, true},
		{"the API server by a name of its host", authority, pki.Request{CommonName: "x", Hosts: []string{"kube-apiserver"}}, true},
		{"a node", authority, pki.Request{CommonName: "system:node:a"}, false},
		{"nobody by name", authority, pki.Request{}, false},
		{"another authority's API server", other, pki.Request{CommonName: "kube-apiserver"}, false},
		{"somebody without a certificate", nil, pki.Request{}, false},
	} {
		t.Run(tc.who, func(t *testing.T) {
			t.Parallel()
			config := &tls.Config{InsecureSkipVerify: true}
			if tc.authority != nil {
				pair, err := tc.authority.Issue(tc.request)
				if err != nil {
					t.Fatal(err)
				}
				certificate, err := pair.TLS()
				if err != nil {
					t.Fatal(err)
				}
				// The client sends this certificate even if the server accepts other authorities.
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
			}
			transport := &http.Transport{TLSClientConfig: config}
			t.Cleanup(transport.CloseIdleConnections)
			response, err := (&http.Client{Transport: transport}).Get(server.URL)
			if err == nil {
				_ = response.Body.Close()
			}
			if accepted := err == nil; accepted != tc.accepted {
				t.Errorf("accepted %v, want %v (%v)", accepted, tc.accepted, err)
			}
		})
	}
}

// clientCertificates returns an error for a file without an authority.
func TestClientCertificatesOfNobody(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + ".missing"} {
		if _, err := clientCertificates(path, "kube-apiserver"); err == nil {
			t.Errorf("%s is taken for a file with authorities", path)
		}
	}
}

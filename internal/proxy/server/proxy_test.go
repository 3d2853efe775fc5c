package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/process/pki"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/client-go/rest"
)

const patience = 2 * time.Minute

// addresses returns n different free addresses. It keeps all ports open until it has picked
// the last one.
func addresses(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// write writes a certificate with a name and its key into a folder.
func write(t *testing.T, authority *pki.Authority, dir, name string) {
	t.Helper()
	pair, err := authority.Issue(pki.Request{CommonName: name, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	// The files may be written in any order: the proxy ignores a pair that does not match.
	for file, content := range map[string][]byte{"tls.key": pair.KeyPEM, "tls.crt": pair.CertPEM} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRun checks that the command serves requests with TLS, health and metrics, reloads its
// certificate, and waits for an open request when it is stopped.
func TestRun(t *testing.T) {
	t.Parallel()
	held, release := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(held)
			<-release
		}
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"caller"}}}`)
			return
		}
		if strings.Contains(r.URL.RawQuery, "watch") || r.URL.Query().Has("limit") {
			http.Error(w, "not here", http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "from the API server")
	}))
	t.Cleanup(upstream.Close)
	authority, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	free := addresses(t, 3)
	o := Options{Listen: free[0], HealthAddr: free[1], MetricsAddr: free[2], TLSDir: t.TempDir(), ShutdownTimeout: patience}
	write(t, authority, o.TLSDir, "first")
	o.ClientCAFile = filepath.Join(t.TempDir(), "clients.crt")
	if err := os.WriteFile(o.ClientCAFile, authority.CertPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: upstream.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config, o, nil, slog.New(slog.DiscardHandler)) }()

	served := func() string {
		conn, err := tls.Dial("tcp", o.Listen, &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12})
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	testwait.For(t, "the first certificate", patience, func() (bool, string) { return served() == "first", served() })
	write(t, authority, o.TLSDir, "second")
	testwait.For(t, "the second certificate", patience, func() (bool, string) { return served() == "second", served() })

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}}}
	t.Cleanup(client.CloseIdleConnections)
	get := func(path string) (int, string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if err != nil {
			return 0, "", err
		}
		r.Header.Set("Authorization", "Bearer x")
		response, err := client.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return response.StatusCode, string(body), err
	}
	if code, body, err := get("https://" + o.Listen + "/version"); code != http.StatusOK || body != "from the API server" {
		t.Errorf("got %d %s %v", code, body, err)
	}
	if code, body, _ := get("http://" + o.HealthAddr + "/healthz"); code != http.StatusOK {
		t.Errorf("healthz: got %d %s", code, body)
	}
	if code, body, _ := get("http://" + o.HealthAddr + "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "has not read the cluster") {
		t.Errorf("readyz of a proxy that has read nothing: got %d %s", code, body)
	}
	if code, body, _ := get("http://" + o.MetricsAddr + "/metrics"); code != http.StatusOK || !strings.Contains(body, `tenure_proxy_requests_total{answer="passed",code="200"} 1`) {
		t.Errorf("metrics: got %d %s", code, body)
	}
	large, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+o.Listen+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	large.Header.Set("X", strings.Repeat("x", maxHeader+8<<10))
	if response, err := client.Do(large); err == nil {
		if response.Body.Close(); response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a header that is too large: got %s", response.Status)
		}
	}

	slow := make(chan string, 1)
	go func() {
		code, body, err := get("https://" + o.Listen + "/slow")
		slow <- fmt.Sprint(code, " ", body, " ", err)
	}()
	<-held
	cancel()
	testwait.For(t, "new connections to be refused", patience, func() (bool, string) {
		conn, err := net.Dial("tcp", o.Listen)
		if err != nil {
			return true, ""
		}
		conn.Close()
		return false, "one was taken"
	})
	close(release)
	if got := <-slow; got != "200 from the API server <nil>" {
		t.Errorf("a request under way at the end: %s", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("the command ended with %v", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, tc := range []struct {
		reason string
		o      Options
		want   string
	}{
		{"no certificate", Options{}, "there is no certificate"},
		{"a Secret in no namespace", Options{TLSSecret: "x", TLSHosts: []string{"y"}}, "RUNTIME_NAMESPACE"},
		{"half of one", Options{CertFile: "x"}, "go together"},
		{"one that is not there", Options{CertFile: filepath.Join(empty, "x"), KeyFile: filepath.Join(empty, "y")}, "cannot read the certificate"},
		{"an authority that is not there", Options{ClientCAFile: filepath.Join(empty, "x")}, "CA certificates of clients"},
	} {
		if _, _, err := tc.o.loadTLS(t.Context(), nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: want %q, got %v", tc.reason, tc.want, err)
		}
	}
	config, _, err := Options{TLSDir: empty, TLSHosts: []string{"tenure-proxy.flux-system.svc"}}.loadTLS(t.Context(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(empty, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "tenure-proxy.flux-system.svc", Roots: pool}); err != nil {
		t.Errorf("the proxy's own certificate: %v", err)
	}
	if config.ClientAuth != tls.NoClientCert {
		t.Error("client certificates are accepted although no authority is named")
	}
}

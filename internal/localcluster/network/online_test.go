package network

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// world is the network outside: one server for all hosts, and the dialled addresses.
type world struct {
	plain, secure *httptest.Server

	mu      sync.Mutex
	dialled []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{plain: httptest.NewServer(say("outside")), secure: httptest.NewTLSServer(say("outside"))}
	t.Cleanup(w.plain.Close)
	t.Cleanup(w.secure.Close)
	return w
}

// dial replaces the real dialler: it connects every outside name to the server.
func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialled = append(w.dialled, address)
	to := w.plain
	if _, port, _ := net.SplitHostPort(address); port == "443" {
		to = w.secure
	}
	return (&net.Dialer{}).DialContext(ctx, network, to.Listener.Addr().String())
}

// TestOnline checks that, online, every proxy connects hosts that are not mapped to
// the outside, and that mapped hosts are still served here. A server of the test is
// the outside; TestForbiddenWhenDialled tests the rules of the real dialler.
func TestOnline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := start(t, func(c *Config) { c.Online, c.dialOutside = true, w.dial })
	trusted := x509.NewCertPool()
	trusted.AddCert(w.secure.Certificate())
	n.outside.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	n.Handle("example.com", "/mapped", say("here"))

	for _, tc := range []struct{ reason, address, want string }{
		{"HTTP to a host that is not mapped", "http://git.elsewhere.net/repo", "outside HTTP/1.1 git.elsewhere.net/repo"},
		{"a mapped path of a mapped host stays here", "https://example.com/mapped/x", "here HTTP/2.0 example.com/mapped/x"},
		{"another path of it leads outside, by HTTPS", "https://example.com/other", "outside HTTP/1.1 example.com/other"},
		{"and by HTTP", "http://example.com/other", "outside HTTP/1.1 example.com/other"},
	} {
		response, body, err := n.get(tc.address)
		if err != nil || response.StatusCode != http.StatusOK || body != tc.want {
			t.Errorf("%s: got %v, %v, %q, want %q", tc.reason, response, err, body, tc.want)
		}
	}

	for name, connect := range map[string]func(string) (net.Conn, error){"proxy": n.viaProxy, "egress": n.viaEgress, "SOCKS": func(string) (net.Conn, error) {
		conn, code := n.viaSOCKS("git.elsewhere.net", 443)
		if code != 0 {
			t.Errorf("SOCKS to a host that is not mapped was answered with code %d", code)
		}
		return conn, nil
	}} {
		conn, err := connect("git.elsewhere.net:443")
		if err != nil {
			t.Errorf("%s: a tunnel to a host that is not mapped: %v", name, err)
			continue
		}
		// The tunnel leads to the server itself: the client sees the server's
		// certificate.
		client := tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "example.com", MinVersion: tls.VersionTLS12})
		if _, err := io.WriteString(client, "GET /deep HTTP/1.0\r\nHost: git.elsewhere.net\r\n\r\n"); err != nil {
			t.Errorf("%s: the tunnel does not lead to the server: %v", name, err)
		}
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	for _, address := range w.dialled {
		if host, _, _ := net.SplitHostPort(address); host != "git.elsewhere.net" && host != "example.com" {
			t.Errorf("%s was dialled, which nobody asked for", address)
		}
	}
	if len(w.dialled) < 6 {
		t.Errorf("dialled only %v: not everything led outside", w.dialled)
	}
}

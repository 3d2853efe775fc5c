package network

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/process/pki"
)

// patience limits every wait of the tests.
const patience = time.Minute

// running is a network that runs until the test ends.
type running struct {
	*Network
	t *testing.T
	// stop ends the network and waits for it.
	stop func()
}

func start(t *testing.T, change func(*Config)) *running {
	t.Helper()
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	// The path of t.TempDir() can be too long for a socket.
	dir, err := os.MkdirTemp("", "net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := Config{CA: ca, Dir: dir, EgressSocket: filepath.Join(dir, "egress.sock"), Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(patience):
			t.Error("Run has not returned")
		}
	}
	t.Cleanup(stop)
	return &running{Network: n, t: t, stop: stop}
}

// env returns the value of a variable of Env.
func (r *running) env(name string) string {
	r.t.Helper()
	for _, variable := range r.Env(nil, "") {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	r.t.Fatalf("Env has no %s", name)
	return ""
}

// client returns an HTTP client with the environment of Env, as Go reads it.
func (r *running) client() *http.Client {
	r.t.Helper()
	return r.clientWith(nil)
}

// clientWith is client for a container with these variables.
func (r *running) clientWith(vars map[string]string) *http.Client {
	r.t.Helper()
	pem, err := os.ReadFile(r.env("SSL_CERT_FILE"))
	if err != nil {
		r.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		r.t.Fatal("SSL_CERT_FILE holds no certificate")
	}
	env := r.Env(vars, testPod)
	at := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, "HTTPS_PROXY=") })
	proxy, err := url.Parse(strings.TrimPrefix(env[at], "HTTPS_PROXY="))
	if err != nil {
		r.t.Fatal(err)
	}
	transport := &http.Transport{
		Proxy: http.ProxyURL(proxy), ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func (r *running) get(address string) (*http.Response, string, error) {
	r.t.Helper()
	return r.getWith(nil, address)
}

// getWith is get for a container with these variables.
func (r *running) getWith(vars map[string]string, address string) (*http.Response, string, error) {
	r.t.Helper()
	response, err := r.clientWith(vars).Get(address)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// connect opens a raw connection with CONNECT. If it is refused, the error is the
// status line.
func (r *running) connect(network, proxy, address string) (net.Conn, error) {
	r.t.Helper()
	conn, err := net.DialTimeout(network, proxy, patience)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, r.authorized("CONNECT "+address+" HTTP/1.1\r\nHost: "+address+"\r\n\r\n")); err != nil {
		r.t.Fatal(err)
	}
	// Read byte by byte: the bytes after the header belong to the tunnel.
	var head []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); {
		if _, err := conn.Read(one); err != nil {
			return nil, err
		}
		head = append(head, one[0])
	}
	if status, _, _ := strings.Cut(string(head), "\r\n"); !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return nil, errors.New(status)
	}
	return conn, nil
}

// authorized adds the proxy's credentials to the head of a request.
func (r *running) authorized(request string) string {
	credentials := base64.StdEncoding.EncodeToString([]byte(proxyUser + ":" + r.secret))
	return strings.Replace(request, "\r\n", "\r\nProxy-Authorization: Basic "+credentials+"\r\n", 1)
}

func (r *running) viaProxy(address string) (net.Conn, error) {
	return r.connect("tcp", r.http.Addr().String(), address)
}

func (r *running) viaEgress(address string) (net.Conn, error) {
	return r.connect("unix", r.cfg.EgressSocket, address)
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, text+" "+r.Proto+" "+r.Host+r.URL.Path)
	})
}

// resolverFunc is a Resolver of one function.
type resolverFunc func(host string, port int) (Answer, error)

func (f resolverFunc) Resolve(_ context.Context, host string, port int) (Answer, error) {
	return f(host, port)
}

// cluster returns a Resolver that maps one name to one address.
func cluster(name, address string) Resolver {
	return resolverFunc(func(host string, _ int) (Answer, error) {
		if host == name {
			return Answer{Address: address}, nil
		}
		return Answer{}, nil
	})
}

// serve runs a server on loopback and returns host:port.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return l.Addr().String()
}

func TestMapped(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.Handle("Example.com.", "", say("root"))
	n.Handle("example.com", "/charts/", say("charts"))
	n.Handle("deep.example.com:8443", "/a/b", say("deep"))
	n.Handle("docker.io", "", say("hub"))
	for _, tc := range []struct {
		reason, url, body string
		status            int
	}{
		{"a mapped host is served over TLS, with HTTP/2", "https://example.com/x", "root HTTP/2.0 example.com/x", 200},
		{"a mapped host is served in the clear", "http://example.com/x", "root HTTP/1.1 example.com/x", 200},
		{"names are compared without case", "http://EXAMPLE.com/x", "root HTTP/1.1 EXAMPLE.com/x", 200},
		{"the longest prefix counts", "https://example.com/charts/index.yaml", "charts HTTP/2.0 example.com/charts/index.yaml", 200},
		{"a prefix is met as a whole", "https://example.com/charts", "charts HTTP/2.0 example.com/charts", 200},
		{"a prefix ends at a slash", "https://example.com/chartsy", "root HTTP/2.0 example.com/chartsy", 200},
		{"every port is served, in TLS", "https://example.com:5000/x", "root HTTP/2.0 example.com:5000/x", 200},
		{"every port is served, in the clear", "http://example.com:443/x", "root HTTP/1.1 example.com:443/x", 200},
		{"the port of a mapping is left out", "https://deep.example.com:8443/a/b/c", "deep HTTP/2.0 deep.example.com:8443/a/b/c", 200},
		{"Flux's name of Docker Hub", "https://index.docker.io/v2/", "hub HTTP/2.0 index.docker.io/v2/", 200},
		{"Helm's name of Docker Hub", "https://registry-1.docker.io/v2/", "hub HTTP/2.0 registry-1.docker.io/v2/", 200},
		{"a missing path names the flag", "https://deep.example.com/a/info/refs", "deep.example.com/a is not mapped (add --map https://deep.example.com/a=DIR)\n", 404},
	} {
		response, body, err := n.get(tc.url)
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		if response.StatusCode != tc.status || body != tc.body {
			t.Errorf("%s: got %d %q, want %d %q", tc.reason, response.StatusCode, body, tc.status, tc.body)
		}
	}
	refused := n.Refused()
	if len(refused) != 1 || refused[0].Address != "deep.example.com/a" || refused[0].Count != 1 || !errors.Is(refused[0].Err, ErrNotMapped) {
		t.Errorf("Refused() = %+v, want the missing path once", refused)
	}
}

// TestCertificateNames checks that the certificate names the host to which the
// connection was made, and that the connection serves only that host.
func TestCertificateNames(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.Handle("a.example.com", "", say("a"))
	n.Handle("b.example.com", "", say("b"))
	roots := n.cfg.CA.Pool()
	conn, err := n.viaProxy("a.example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	err = tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "b.example.com", MinVersion: tls.VersionTLS12}).Handshake()
	var wrong x509.HostnameError
	if !errors.As(err, &wrong) || wrong.Certificate.DNSNames[0] != "a.example.com" {
		t.Errorf("a client that wants another name got %v, want a certificate for a.example.com", err)
	}
	if conn, err = n.viaProxy("a.example.com:443"); err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "a.example.com", MinVersion: tls.VersionTLS12})
	if _, err := io.WriteString(secure, "GET / HTTP/1.0\r\nHost: b.example.com\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(secure)
	if !strings.HasPrefix(string(answer), "HTTP/1.0 421 ") {
		t.Errorf("another host on the same connection got %q, want 421", answer)
	}
}

// TestNotMappedErrorKeyless checks that no folder is proposed for a host of Sigstore.
func TestNotMappedErrorKeyless(t *testing.T) {
	t.Parallel()
	said := (&NotMappedError{Host: "tuf-repo-cdn.sigstore.dev"}).Error()
	if strings.Contains(said, "--map") || !strings.Contains(said, "trustedRootSecretRef") {
		t.Errorf("the error is %q, want the field that names the keys and no flag", said)
	}
}

func TestUnmapped(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.Handle("example.com", "", say("root"))
	const reason = "github.com is not mapped (there is no network here: add --map https://github.com/...=DIR, or --online)"
	_, _, err := n.get("https://github.com/acme/fleet")
	if err == nil || !strings.HasSuffix(err.Error(), reason) {
		t.Errorf("the error of a Go client is %v, want it to end with %q", err, reason)
	}
	if _, err := n.viaProxy("GitHub.com.:443"); err == nil || err.Error() != "HTTP/1.1 502 "+reason {
		t.Errorf("the status line is %q, want the reason", err)
	}
	response, body, err := n.get("http://github.com/acme/fleet")
	if err != nil || response.StatusCode != http.StatusBadGateway || body != reason+"\n" {
		t.Errorf("a request in the clear got %v, %v, %q, want 502 and the reason", err, response, body)
	}
	if refused := n.Refused(); len(refused) != 3 || !errors.Is(refused[0].Err, ErrNotMapped) {
		t.Errorf("Refused() = %+v, want three addresses", refused)
	}
}

func TestRefusedIsBounded(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	for i := range maxRefusals + 10 {
		n.refuse(strings.Repeat("x", i), ErrNotMapped)
	}
	n.refuse("x", ErrNotMapped)
	n.refuse("later.ns.svc:80", ErrNoEndpoint)
	refused := n.Refused()
	if len(refused) > maxRefusals {
		t.Errorf("%d addresses are remembered, want at most %d", len(refused), maxRefusals)
	}
	for _, r := range refused {
		if len(r.Address) > maxRefusedLength+3 {
			t.Errorf("an address of %d bytes is remembered", len(r.Address))
		}
		if r.Address == "x" && r.Count != 2 {
			t.Errorf("x was asked for %d times, want 2", r.Count)
		}
		if r.Address == "later.ns.svc:80" {
			t.Error("a Service that is not ready yet counts as not mapped")
		}
	}
}

// TestNothingIsLeft checks that after Run no listener, no connection and no
// goroutine is left.
func TestNothingIsLeft(t *testing.T) {
	n := start(t, nil)
	n.Handle("example.com", "", say("root"))
	released := make(chan struct{})
	n.HandleSSH("example.com", func(conn net.Conn, _ string) {
		_, _ = io.Copy(io.Discard, conn)
		close(released)
	})
	silent := serve(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	n.SetServices(cluster("silent.ns.svc", silent))
	var open []net.Conn
	for _, address := range []string{"silent.ns.svc:80", "example.com:22", "example.com:443", "example.com:80"} {
		conn, err := n.viaProxy(address)
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		open = append(open, conn)
	}
	if _, _, err := n.get("https://example.com/"); err != nil {
		t.Fatal(err)
	}
	n.stop()
	for i, conn := range open {
		if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d is still open", i)
		}
	}
	select {
	case <-released:
	case <-time.After(patience):
		t.Error("the SSH connection is still served")
	}
	// Do not dial the ports: another program may listen on them by now.
	for _, l := range []net.Listener{n.http, n.socks, n.egress} {
		if err := l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s still listens (%v)", l.Addr(), err)
		}
	}
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		count := strings.Count(string(stacks), "localcluster/network.(*Network)")
		if count == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines of the network are left:\n%s", count, stacks)
		}
	}
}

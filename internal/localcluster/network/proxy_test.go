package network

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStreaming checks that bytes of a client reach the server during the request,
// and the answer the client.
func TestStreaming(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		_ = control.Flush()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+line)
			_ = control.Flush()
		}
	})
	backend := httptest.NewServer(echo)
	t.Cleanup(backend.Close)
	n := start(t, nil)
	n.Handle("example.com", "", echo)
	n.SetServices(cluster("echo.ns.svc", backend.Listener.Addr().String()))
	for _, tc := range []struct{ reason, url string }{
		{"a mapped host over HTTP/2", "https://example.com/"},
		{"a Service in absolute form", "http://echo.ns.svc/"},
	} {
		body, sent := io.Pipe()
		// A client whose request never ends would wait forever.
		limit := time.AfterFunc(patience, func() { _ = sent.Close() })
		t.Cleanup(func() { limit.Stop() })
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tc.url, body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := n.client().Do(request)
		if err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		lines := bufio.NewReader(response.Body)
		for _, line := range []string{"one\n", "two\n"} {
			if _, err := io.WriteString(sent, line); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if got, err := lines.ReadString('\n'); got != "echo "+line {
				t.Fatalf("%s: got %q, %v, want the echo of %q before the request ends", tc.reason, got, err, line)
			}
		}
		_ = sent.Close()
		_ = response.Body.Close()
	}
}

// TestTunnel checks that a tunnel carries any protocol, and that the end of one
// direction does not end the other one.
func TestTunnel(t *testing.T) {
	t.Parallel()
	backend := serve(t, func(conn net.Conn) {
		all, _ := io.ReadAll(conn)
		_, _ = io.WriteString(conn, "after the end: "+string(all))
	})
	n := start(t, nil)
	n.SetServices(cluster("late.ns.svc", backend))
	for name, connect := range map[string]func(string) (net.Conn, error){"proxy": n.viaProxy, "egress": n.viaEgress} {
		conn, err := connect("late.ns.svc:1234")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		if err := closeWrite(conn); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "after the end: hello" {
			t.Errorf("%s: got %q, %v, want the answer after a half close", name, got, err)
		}
	}
}

// TestEagerClient checks that bytes that a client sends together with CONNECT belong
// to the tunnel.
func TestEagerClient(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.Handle("example.com", "", say("root"))
	conn, err := net.Dial("tcp", n.http.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, n.authorized("CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n\r\nGET /x HTTP/1.0\r\nHost: example.com\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if all, _ := io.ReadAll(conn); !strings.HasSuffix(string(all), "root HTTP/1.0 example.com/x") {
		t.Errorf("got %q, want the answer to the eager request", all)
	}
}

// TestUpgrade checks that a protocol upgrade passes through a tunnel and in absolute
// form.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		_, _ = io.Copy(conn, conn)
	}))
	t.Cleanup(backend.Close)
	n := start(t, nil)
	n.SetServices(cluster("up.ns.svc", backend.Listener.Addr().String()))
	tunnelled, err := n.viaProxy("up.ns.svc:80")
	if err != nil {
		t.Fatal(err)
	}
	direct, err := net.Dial("tcp", n.http.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	for reason, conn := range map[string]net.Conn{"through a tunnel": tunnelled, "in absolute form": direct} {
		const header = " HTTP/1.1\r\nHost: up.ns.svc\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		request := "GET /" + header
		if conn == direct {
			request = n.authorized("GET http://up.ns.svc/" + header)
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "websocket" {
			t.Fatalf("%s: got %v, %v, want 101", reason, response, err)
		}
		if _, err := io.WriteString(conn, "frame\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := reader.ReadString('\n'); got != "frame\n" {
			t.Errorf("%s: got %q, %v, want the frame back", reason, got, err)
		}
	}
}

// TestForwardedHeaders checks that hop-by-hop headers do not reach the server, and
// that all other headers arrive unchanged and without additions.
func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	t.Cleanup(backend.Close)
	n := start(t, nil)
	n.SetServices(cluster("web.ns.svc", backend.Listener.Addr().String()))
	conn, err := net.Dial("tcp", n.http.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const head = "GET http://web.ns.svc:8080/a%2Fb?q=1 HTTP/1.1\r\nHost: other.example.com\r\n" +
		"Proxy-Connection: keep-alive\r\nConnection: close, X-Private\r\nX-Private: 1\r\n" +
		"Authorization: Bearer t\r\nX-Public: 2\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
	if _, err := io.WriteString(conn, n.authorized(head)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Fatal(err)
	}
	r := <-got
	want := http.Header{"Authorization": {"Bearer t"}, "X-Public": {"2"}}
	if diff := cmp.Diff(want, r.Header); diff != "" {
		t.Errorf("headers that arrived (-want +got):\n%s", diff)
	}
	// RFC 9112, 3.2.2: with the absolute form, the Host header is ignored.
	if r.Host != "web.ns.svc:8080" || r.RequestURI != "/a%2Fb?q=1" {
		t.Errorf("%s%s arrived, want the address that was asked for", r.Host, r.RequestURI)
	}
}

func TestProxyRefusesWhatIsNoProxyRequest(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.Handle("example.com", "", say("root"))
	for _, tc := range []struct{ reason, request, status string }{
		{"a request to the proxy itself", "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", "400"},
		{"TLS is for CONNECT", "GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", "400"},
		{"a tunnel without a port", "CONNECT example.com HTTP/1.1\r\nHost: example.com\r\n\r\n", "400"},
		{"a tunnel to port 0", "CONNECT example.com:0 HTTP/1.1\r\nHost: example.com:0\r\n\r\n", "400"},
		{"two lengths are a smuggler's", "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
	} {
		conn, err := net.Dial("tcp", n.http.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, n.authorized(tc.request)); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		_ = conn.Close()
		if err != nil || !strings.HasPrefix(response.Status, tc.status) {
			t.Errorf("%s: got %v, %v, want %s", tc.reason, response, err, tc.status)
		}
	}
}

// TestForbidden checks that the proxies refuse this machine in every spelling,
// online too.
func TestForbidden(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 100)
	victim := serve(t, func(conn net.Conn) { reached <- conn.LocalAddr().String() })
	_, port, _ := net.SplitHostPort(victim)
	spellings := []struct{ reason, host string }{
		{"loopback", "127.0.0.1"},
		{"another loopback address", "127.1.2.3"},
		{"a short form", "127.1"},
		{"decimal", "2130706433"},
		{"octal", "0177.0.0.1"},
		{"hexadecimal", "0x7f.0.0.1"},
		{"a final dot", "127.0.0.1."},
		{"IPv6", "[::1]"},
		{"IPv4 in IPv6", "[::ffff:127.0.0.1]"},
		{"IPv4 in IPv6, hexadecimal", "[::ffff:7f00:1]"},
		{"unspecified", "0.0.0.0"},
		{"unspecified, IPv6", "[::]"},
		{"zero", "0"},
		{"the name", "localhost"},
		{"the name in capitals and with a dot", "LOCALHOST."},
		{"a name below it", "db.localhost"},
		{"link-local, where clouds keep credentials", "169.254.169.254"},
		{"link-local, decimal", "2852039166"},
		{"link-local, IPv6", "[fe80::1]"},
		{"credentials of AWS", "[fd00:ec2::254]"},
		{"credentials of Alibaba", "100.100.100.200"},
		{"multicast", "224.0.0.1"},
		{"broadcast", "255.255.255.255"},
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil {
			spellings = append(spellings, struct{ reason, host string }{"an interface of this machine", ip.String()})
		}
	}
	for _, online := range []bool{false, true} {
		n := start(t, func(c *Config) { c.Online = online })
		n.AllowEgress(victim)
		for _, tc := range spellings {
			address := tc.host + ":" + port
			if _, err := n.viaProxy(address); err == nil || !strings.HasPrefix(err.Error(), "HTTP/1.1 502 ") {
				t.Errorf("%s, online %v: CONNECT %s got %v, want a refusal", tc.reason, online, address, err)
			}
			if response, body, err := n.get("http://" + address); err != nil || response.StatusCode != http.StatusBadGateway {
				t.Errorf("%s, online %v: GET %s got %v, %v, %q, want a refusal", tc.reason, online, address, response, err, body)
			}
		}
		// An ExternalName of the cluster that leads to this machine is refused too.
		n.SetServices(resolverFunc(func(host string, _ int) (Answer, error) {
			if host == "hidden.ns.svc" {
				return Answer{Alias: "LocalHost."}, nil
			}
			return Answer{}, nil
		}))
		for name, connect := range map[string]func(string) (net.Conn, error){"proxy": n.viaProxy, "egress": n.viaEgress} {
			if _, err := connect("hidden.ns.svc:" + port); err == nil || !strings.Contains(err.Error(), ErrForbidden.Error()) {
				t.Errorf("%s: an ExternalName that hides localhost got %v, want %v", name, err, ErrForbidden)
			}
		}
	}
	select {
	case at := <-reached:
		t.Errorf("a connection arrived at %s", at)
	default:
	}
}

// TestForbiddenWhenDialled checks that the dialler checks the address, whatever name
// led to it.
func TestForbiddenWhenDialled(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:1", "localhost:1", "[::ffff:127.0.0.1]:1", "169.254.169.254:80"} {
		conn, err := dialOutside(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, ErrForbidden) {
			t.Errorf("dialling %s gave %v, want %v", address, err, ErrForbidden)
		}
	}
}

// TestEgress checks that the API server reaches the addresses of AllowEgress and no
// other address of this machine, and that processes do not reach them.
func TestEgress(t *testing.T) {
	t.Parallel()
	kubelet := serve(t, func(conn net.Conn) { _, _ = io.WriteString(conn, "kubelet") })
	other := serve(t, func(conn net.Conn) { _, _ = io.WriteString(conn, "other") })
	n := start(t, nil)
	n.AllowEgress(kubelet)
	conn, err := n.viaEgress(kubelet)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(conn); string(got) != "kubelet" {
		t.Errorf("the API server got %q from the kubelet", got)
	}
	_, port, _ := net.SplitHostPort(kubelet)
	for _, address := range []string{other, "localhost:" + port, "127.0.0.2:" + port, "[::ffff:127.0.0.1]:" + port} {
		if _, err := n.viaEgress(address); err == nil || !strings.Contains(err.Error(), ErrForbidden.Error()) {
			t.Errorf("the API server asked for %s and got %v, want %v", address, err, ErrForbidden)
		}
	}
	if _, err := n.viaProxy(kubelet); err == nil || !strings.Contains(err.Error(), ErrForbidden.Error()) {
		t.Errorf("a process asked for the kubelet and got %v, want %v", err, ErrForbidden)
	}
	if _, err := n.viaEgress("github.com:443"); err == nil || !strings.Contains(err.Error(), "github.com is not mapped") {
		t.Errorf("the API server asked for a host that is not mapped and got %v", err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", n.cfg.EgressSocket)
	}}, Timeout: patience}
	response, err := client.Get("http://example.com/")
	if err != nil || response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a request that is no CONNECT got %v, %v, want 405", response, err)
	}
	if response != nil {
		_ = response.Body.Close()
	}
}

// TestUnreachableService checks that the status line contains the error of a Service
// without a backend, in one line.
func TestUnreachableService(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.SetServices(resolverFunc(func(string, int) (Answer, error) { return Answer{}, errors.New("first\r\nInjected: yes") }))
	const want = "HTTP/1.1 502 cannot reach web.ns.svc:443: first  Injected: yes"
	if _, err := n.viaEgress("web.ns.svc:443"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	// Two aliases that stand for each other do not loop forever.
	n.SetServices(resolverFunc(func(host string, _ int) (Answer, error) {
		return Answer{Alias: map[bool]string{true: "b.ns.svc", false: "a.ns.svc"}[host == "a.ns.svc"]}, nil
	}))
	if _, err := n.viaProxy("a.ns.svc:80"); err == nil || !strings.Contains(err.Error(), "is not mapped") {
		t.Errorf("a circle of aliases got %v, want a refusal", err)
	}
}

// TestAliasOfMapped checks that an alias in the cluster can lead to a mapped host.
func TestAliasOfMapped(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.Handle("example.com", "", say("root"))
	n.SetServices(resolverFunc(func(host string, _ int) (Answer, error) {
		return Answer{Alias: map[string]string{"web.ns.svc": "example.com"}[host]}, nil
	}))
	conn, err := n.viaProxy("web.ns.svc:80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /x HTTP/1.0\r\nHost: example.com\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if all, _ := io.ReadAll(conn); !strings.HasSuffix(string(all), "root HTTP/1.0 example.com/x") {
		t.Errorf("got %q, want the mapped host", all)
	}
}

// TestStrangersAreRefused checks that clients without the secret get nothing from
// the HTTP proxy, with any form of request.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.Handle("example.com", "", say("root"))
	for _, tc := range []struct{ reason, request string }{
		{"a tunnel", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"},
		{"a request in absolute form", "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n"},
		{"another password", "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: Basic dGVudXJlOndyb25n\r\n\r\n"},
	} {
		conn, err := net.Dial("tcp", n.http.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, tc.request); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != http.StatusProxyAuthRequired {
			t.Errorf("%s: got %v, %v, want 407", tc.reason, response, err)
		}
	}
}

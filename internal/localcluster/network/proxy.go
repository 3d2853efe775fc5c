package network

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// proxyHandler returns the HTTP proxy of the processes. It serves CONNECT and
// requests in absolute form (RFC 9110, 7.1 and 9.3.6).
func (n *Network) proxyHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limits, known := n.authorize(r.Header.Get("Proxy-Authorization"))
		switch {
		case !known:
			w.Header().Set("Proxy-Authenticate", `Basic realm="tenure"`)
			http.Error(w, "this proxy is for the processes of a local cluster", http.StatusProxyAuthRequired)
		case r.Method == http.MethodConnect:
			n.connect(w, r, func(ctx context.Context, host string, port int) (destination, net.Conn, error) {
				if err := limits.refuseTLS(r.Host); err != nil {
					return destination{name: host, port: port}, nil, err
				}
				return n.connectTo(ctx, host, port)
			})
		case r.URL.IsAbs() && r.URL.Scheme == "http":
			n.absolute(w, r, limits)
		default:
			http.Error(w, "this is a proxy: it takes CONNECT and requests for http:// addresses", http.StatusBadRequest)
		}
	})
}

// absolute answers a request in absolute form.
func (n *Network) absolute(w http.ResponseWriter, r *http.Request, limits *limits) {
	address := r.URL.Host
	if r.URL.Port() == "" {
		address = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	host, port, err := splitAddress(address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	proxy, err := n.through(r.Context(), limits, address)
	if err != nil {
		n.refuse(address, err)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if proxy != "" {
		n.forwardThrough(w, r, proxy)
		return
	}
	d, err := n.route(r.Context(), host, port)
	switch {
	case err != nil:
		n.refuse(address, err)
		http.Error(w, err.Error(), http.StatusBadGateway)
	case d.mapped != nil:
		n.serveMapped(w, r, d)
	default:
		n.forward(w, r, d, false)
	}
}

// forward passes a request on to a destination that is not served here. It keeps the
// client's Host header.
func (n *Network) forward(w http.ResponseWriter, r *http.Request, d destination, secure bool) {
	// Without this the answer would begin only after the end of the request. Some
	// protocols neither need nor support it.
	_ = http.NewResponseController(w).EnableFullDuplex()
	scheme, address, transport := "http", d.address(), n.outside
	if secure {
		scheme = "https"
	}
	if d.cluster != "" {
		address, transport = d.cluster, n.inside
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = scheme, address, pr.In.Host
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(n.cfg.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			n.refuse(d.address(), err)
			http.Error(w, fmt.Sprintf("cannot reach %s: %v", d.address(), err), http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}

// forwardThrough passes a request in absolute form on to a proxy of the cluster at an address on this machine.
func (n *Network) forwardThrough(w http.ResponseWriter, r *http.Request, address string) {
	forward := &httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {},
		Transport:     n.proxied,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(n.cfg.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			n.refuse(r.URL.Host, err)
			http.Error(w, fmt.Sprintf("cannot reach %s through the proxy in the Pod: %v", r.URL.Host, err), http.StatusBadGateway)
		},
	}
	forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), throughKey{}, &url.URL{Scheme: "http", Host: address})))
}

// throughKey is the key of a context's value with the address of the proxy for its request.
type throughKey struct{}

// newProxied returns a transport that forwards requests to the proxy in their contexts.
func newProxied() *http.Transport {
	transport := newTransport((&net.Dialer{}).DialContext)
	transport.Proxy = func(r *http.Request) (*url.URL, error) {
		proxy, _ := r.Context().Value(throughKey{}).(*url.URL)
		return proxy, nil
	}
	return transport
}

// newTransport returns a transport that forwards requests.
func newTransport(dial dialer) *http.Transport {
	return &http.Transport{
		DialContext:         dial,
		TLSHandshakeTimeout: outsidePatience,
		IdleConnTimeout:     10 * time.Second,
		DisableCompression:  true,
	}
}

// connector finds a destination and connects to it, unless the destination is served
// here.
type connector func(ctx context.Context, host string, port int) (destination, net.Conn, error)

// connectTo is the connector of the processes.
func (n *Network) connectTo(ctx context.Context, host string, port int) (destination, net.Conn, error) {
	d, err := n.route(ctx, host, port)
	if err != nil || d.mapped != nil {
		return d, nil, err
	}
	there, err := n.dial(ctx, d)
	if err != nil {
		return d, nil, fmt.Errorf("cannot reach %s: %w", d.address(), err)
	}
	return d, there, nil
}

// egressHandler returns the API server's proxy. It reaches the addresses of
// AllowEgress, and all addresses that processes may reach.
func (n *Network) egressHandler() http.Handler {
	to := func(ctx context.Context, host string, port int) (destination, net.Conn, error) {
		d := destination{name: host, port: port}
		n.mu.RLock()
		allowed := n.direct[d.address()]
		n.mu.RUnlock()
		if !allowed {
			return n.connectTo(ctx, host, port)
		}
		there, err := (&net.Dialer{}).DialContext(ctx, "tcp", d.address())
		return d, there, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "this proxy takes CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		n.connect(w, r, to)
	})
}

// connect answers a CONNECT request. Go clients show only the status line of a
// refusal, so it contains the reason.
func (n *Network) connect(w http.ResponseWriter, r *http.Request, to connector) {
	host, port, err := splitAddress(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d, there, refusal := to(r.Context(), host, port)
	if refusal != nil {
		n.refuse(r.Host, refusal)
	}
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		if there != nil {
			_ = there.Close()
		}
		http.Error(w, "this connection cannot become a tunnel", http.StatusInternalServerError)
		return
	}
	_ = here.SetWriteDeadline(time.Now().Add(headerPatience))
	if refusal != nil {
		defer here.Close()
		reason := oneLine(refusal.Error())
		fmt.Fprintf(here, "HTTP/1.1 502 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", reason, len(reason)+1, reason)
		return
	}
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		n.cfg.Log.Debug("a proxy client is gone", "error", err)
	}
	_ = here.SetWriteDeadline(time.Time{})
	// Bytes that the client has sent in advance belong to the tunnel.
	if buffered.Reader.Buffered() > 0 {
		here = &peekedConn{Conn: here, r: buffered.Reader}
	}
	n.join(here, d, there)
}

// join connects a client's connection with its destination, and closes it in the
// end.
func (n *Network) join(here net.Conn, d destination, there net.Conn) {
	if d.mapped != nil {
		n.takeOver(here, d)
		return
	}
	tunnel(here, there)
}

// oneLine replaces control characters by spaces, to make a text fit for a status
// line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("cannot use the address %q: it must be host:port", address)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || host == "" || number == 0 {
		return "", 0, fmt.Errorf("cannot use the address %q: it must be host:port", address)
	}
	return host, int(number), nil
}

// EgressConfig returns the EgressSelectorConfiguration with which an API server
// reaches the cluster's Services and node through the socket.
func EgressConfig(socket string) []byte {
	return fmt.Appendf(nil, `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport:
        uds:
          udsName: %s
`, socket)
}

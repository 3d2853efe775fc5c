package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// proxyHandler is the HTTP proxy of the processes: CONNECT, and requests in
// absolute form (RFC 9110, 7.1 and 9.3.6).
func (n *Network) proxyHandler() http.Handler {
	forward := n.forwarder()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			n.connect(w, r, n.dial)
		case r.URL.IsAbs() && r.URL.Scheme == "http":
			forward.ServeHTTP(w, r)
		default:
			http.Error(w, "this is a proxy: it takes CONNECT and requests for http:// addresses", http.StatusBadRequest)
		}
	})
}

// forwarder passes on requests in absolute form.
func (n *Network) forwarder() http.Handler {
	return &httputil.ReverseProxy{
		// The client's own Host header names the server that it means.
		Rewrite: func(pr *httputil.ProxyRequest) { pr.Out.Host = pr.In.Host },
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				host, port, err := splitAddress(address)
				if err != nil {
					return nil, err
				}
				return n.dial(ctx, host, port)
			},
			IdleConnTimeout:    10 * time.Second,
			DisableCompression: true,
		},
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			n.refuse(r.URL.Host, err)
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
}

// egressHandler is the API server's proxy. Besides what processes may reach, it
// leads to the addresses of AllowEgress.
func (n *Network) egressHandler() http.Handler {
	dial := func(ctx context.Context, host string, port int) (net.Conn, error) {
		address := net.JoinHostPort(host, strconv.Itoa(port))
		n.mu.RLock()
		allowed := n.direct[address]
		n.mu.RUnlock()
		if allowed {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
		return n.dial(ctx, host, port)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "this proxy takes CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		n.connect(w, r, dial)
	})
}

// connect answers a CONNECT request. Of a refusal, clients made with Go show the
// status line alone, so the reason stands there.
func (n *Network) connect(w http.ResponseWriter, r *http.Request, dial func(context.Context, string, int) (net.Conn, error)) {
	host, port, err := splitAddress(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	there, dialErr := dial(r.Context(), host, port)
	if dialErr != nil {
		n.refuse(r.Host, dialErr)
	}
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		if there != nil {
			_ = there.Close()
		}
		http.Error(w, "this connection cannot become a tunnel", http.StatusInternalServerError)
		return
	}
	if dialErr != nil {
		defer here.Close()
		reason := oneLine(dialErr.Error())
		fmt.Fprintf(here, "HTTP/1.1 502 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", reason, len(reason)+1, reason)
		return
	}
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = here.Close()
		_ = there.Close()
		return
	}
	// What the client has sent in advance belongs to the tunnel.
	if pending := buffered.Reader.Buffered(); pending > 0 {
		here = &peekedConn{Conn: here, r: buffered.Reader}
	}
	tunnel(here, there)
}

// oneLine makes a text fit for a status line.
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
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("cannot use the address %q: it must be host:port", address)
	}
	return host, int(number), nil
}

// EgressConfig is the EgressSelectorConfiguration with which an API server
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

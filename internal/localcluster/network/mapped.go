package network

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// host is a mapped host: its handlers by path prefix, and its SSH handler. The
// network's mutex guards the fields.
type host struct {
	handlers map[string]http.Handler
	ssh      func(net.Conn, string)
}

// dockerHub holds the names by which clients address the registry docker.io: Flux's OCI library
// uses the second, Helm's the third.
var dockerHub = []string{"docker.io", "index.docker.io", "registry-1.docker.io"}

// mapped returns the host of a name, and adds it if it is missing. The names of Docker Hub are one
// host.
func (n *Network) mapped(name string) *host {
	name = cleanHost(hostOnly(name))
	h := n.hosts[name]
	if h == nil {
		h = &host{handlers: map[string]http.Handler{}}
		names := []string{name}
		if slices.Contains(dockerHub, name) {
			names = dockerHub
		}
		for _, name := range names {
			n.hosts[name] = h
		}
	}
	return h
}

// Handle serves the paths of an outside host that begin with prefix, over HTTP and
// HTTPS. Of several matching prefixes, the longest counts. The host is served on
// every port: Handle ignores a port in hostname.
func (n *Network) Handle(hostname, prefix string, handler http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mapped(hostname).handlers[strings.TrimSuffix(prefix, "/")] = handler
}

// HandleSSH serves SSH connections to an outside host. serve receives the host, with
// the port unless it is 22.
func (n *Network) HandleSSH(hostname string, serve func(conn net.Conn, host string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mapped(hostname).ssh = serve
}

// handler returns the handler for a path of a mapped host, or nil.
func (n *Network) handler(h *host, path string) http.Handler {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var found http.Handler
	longest := -1
	for prefix, handler := range h.handlers {
		inside := path == prefix || strings.HasPrefix(path, prefix+"/")
		if inside && len(prefix) > longest {
			found, longest = handler, len(prefix)
		}
	}
	return found
}

// serveMapped serves a request to a mapped host. It answers a request for another
// host on the same connection with 421 Misdirected Request (RFC 9110, 15.5.20): the
// certificate does not name that host.
func (n *Network) serveMapped(w http.ResponseWriter, r *http.Request, d destination) {
	if asked := cleanHost(hostOnly(r.Host)); asked != d.name {
		http.Error(w, fmt.Sprintf("this is %s, not %s", d.name, asked), http.StatusMisdirectedRequest)
		return
	}
	if handler := n.handler(d.mapped, r.URL.Path); handler != nil {
		handler.ServeHTTP(w, r)
		return
	}
	if n.cfg.Online {
		// Use TLS if the client does.
		n.forward(w, r, destination{name: d.name, port: d.port}, r.TLS != nil)
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/info/refs")
	n.refuse(d.name+path, ErrNotMapped)
	http.Error(w, fmt.Sprintf("%s%s is not mapped (add --map https://%s%s=DIR)", d.name, path, d.name, path), http.StatusNotFound)
}

// mappedConn is a connection with its destination.
type mappedConn struct {
	net.Conn
	to destination
}

type mappedKey struct{}

// rememberMapped implements http.Server's ConnContext.
func rememberMapped(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(*mappedConn); ok {
		return context.WithValue(ctx, mappedKey{}, c.to)
	}
	return ctx
}

// mappedHandler serves the HTTP and HTTPS connections of takeOver.
func (n *Network) mappedHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, ok := r.Context().Value(mappedKey{}).(destination)
		if !ok {
			http.Error(w, "this connection leads nowhere", http.StatusMisdirectedRequest)
			return
		}
		n.serveMapped(w, r, to)
	})
}

// tlsHandshake is the first byte of a TLS connection (RFC 8446, 5.1).
const tlsHandshake = 0x16

// takeOver serves a client's connection as the mapped host. Port 22 is always SSH.
// On other ports the first byte from the client shows the protocol, since the client
// may send first in all three protocols.
func (n *Network) takeOver(conn net.Conn, d destination) {
	n.mu.RLock()
	serveSSH := d.mapped.ssh
	n.mu.RUnlock()
	first := byte('S')
	if d.port != sshPort {
		var err error
		if conn, first, err = peek(conn); err != nil {
			return
		}
	}
	switch {
	case first == 'S' && serveSSH != nil:
		defer conn.Close()
		name := d.name
		if d.port != sshPort {
			name = d.address()
		}
		serveSSH(conn, name)
	case d.port == sshPort:
		n.refuse(d.address(), &NotMappedError{Host: d.name})
		_ = conn.Close()
	case first == tlsHandshake:
		n.secure.push(&mappedConn{Conn: conn, to: d})
	default:
		n.plain.push(&mappedConn{Conn: conn, to: d})
	}
}

const sshPort = 22

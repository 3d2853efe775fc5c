package network

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// host is a mapped host: handlers by path prefix, and one for SSH. Its fields
// are guarded by the network's mutex.
type host struct {
	handlers map[string]http.Handler
	ssh      func(net.Conn, string)
}

func (n *Network) mapped(name string) *host {
	name = cleanHost(hostOnly(name))
	h := n.hosts[name]
	if h == nil {
		h = &host{handlers: map[string]http.Handler{}}
		n.hosts[name] = h
	}
	return h
}

// Handle serves an outside host's paths that begin with prefix, over HTTP and
// HTTPS. Of several prefixes that fit, the longest counts. The host is served on
// every port: one in hostname is left out.
func (n *Network) Handle(hostname, prefix string, handler http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mapped(hostname).handlers[strings.TrimSuffix(prefix, "/")] = handler
}

// HandleSSH serves SSH connections to an outside host. serve is told which one,
// with the port unless it is 22.
func (n *Network) HandleSSH(hostname string, serve func(conn net.Conn, host string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mapped(hostname).ssh = serve
}

// handler returns what serves a path of a mapped host, or nil.
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

// serveMapped serves a request that leads to a mapped host. A request for
// another host on the same connection is misdirected (RFC 9110, 15.5.20): the
// certificate was not made out to it.
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
		// The scheme that the client speaks with us.
		n.forward(w, r, destination{name: d.name, port: d.port}, r.TLS != nil)
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/info/refs")
	n.refuse(d.name+path, ErrNotMapped)
	http.Error(w, fmt.Sprintf("%s%s is not mapped (add --map https://%s%s=DIR)", d.name, path, d.name, path), http.StatusNotFound)
}

// mappedConn remembers where a connection leads.
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

// mappedHandler serves the connections of takeOver.
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

// takeOver serves a client's connection as the mapped host would. Which protocol
// is spoken shows in the first byte that the client sends, for in all three it
// may send first; port 22 is SSH in any case.
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

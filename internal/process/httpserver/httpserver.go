// Package httpserver serves HTTP/1.1 on ports that every Pod of the cluster may reach. A client needs no
// credential to open a connection there, so the package bounds the size and the time of a request, and the
// number of connections. Without bounds, a few hundred clients fill the memory of the process: a header of
// 1 MiB in short lines takes 4 MiB.
package httpserver

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxHeader is the maximum size of a header, in bytes. Go's server adds 4 KiB.
	maxHeader = 8 << 10
	// headerTimeout is the maximum time of a TLS handshake and of a header.
	headerTimeout = 10 * time.Second
	// requestTimeout is the maximum time of a request with its body and the answer. It is longer than the ten seconds that
	// an API server waits for a webhook.
	requestTimeout = 20 * time.Second
	// idleTimeout is the time after which an idle connection ends. It is longer than the 90 seconds after which an
	// API server closes one: if both closed it at the same time, a request could be lost.
	idleTimeout = 2 * time.Minute
	// maxConnections is the maximum number of open connections. Each takes 60 KiB at most before its request
	// has been read.
	maxConnections = 4096
	// maxFromAddress is the maximum number of open connections from one address. All API servers of a cluster may have one address.
	maxFromAddress = 1024
)

// New returns a server with bounds on the size of a header and on the time of a request. The context of a
// request ends when ctx ends.
func New(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:        handler,
		BaseContext:    func(net.Listener) context.Context { return ctx },
		MaxHeaderBytes: maxHeader,

		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
	}
}

// Limit returns a listener that closes new connections at once while too many are open, in all or from one
// address.
func Limit(listener net.Listener) net.Listener {
	return &limited{Listener: listener, from: map[string]int{}}
}

// limited counts the open connections, in all and by address.
type limited struct {
	net.Listener

	mu   sync.Mutex
	open int
	from map[string]int
}

// Accept returns the next connection within the limits.
func (l *limited) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressOf(accepted)
		if !l.add(address) {
			_ = accepted.Close()
			continue
		}
		return &connection{Conn: accepted, release: sync.OnceFunc(func() { l.remove(address) })}, nil
	}
}

func (l *limited) add(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= maxConnections || l.from[address] >= maxFromAddress {
		return false
	}
	l.open++
	l.from[address]++
	return true
}

func (l *limited) remove(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.from[address]--; l.from[address] == 0 {
		delete(l.from, address)
	}
}

// addressOf returns the address of a client without the port. A host may have all addresses of an IPv6 network of 64 bits,
// so these count as one.
func addressOf(c net.Conn) string {
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return ""
	}
	address := from.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, _ := address.Prefix(64)
	return network.String()
}

// connection releases its place when it is closed.
type connection struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (c *connection) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// Package httpserver serves HTTP/1.1 on ports that every Pod of the cluster may reach. A client needs no
// credential to open a connection there, so the package bounds the size and the time of a request, and the
// number of connections. Without bounds, a few hundred clients fill the memory of the process: a header of
// 1 MiB in short lines takes 4 MiB.
package httpserver

import (
	"container/list"
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

// Limit returns a listener that closes new connections at once while too many are open from one address. When too many
// are open in all, a new connection takes the place of the oldest one of the address with the most: clients with a few
// addresses cannot keep the others out.
func Limit(listener net.Listener) net.Listener {
	return &limited{Listener: listener, from: map[string]*list.List{}}
}

// limited keeps the open connections of each address, the oldest first.
type limited struct {
	net.Listener

	mu   sync.Mutex
	open int
	from map[string]*list.List
}

// Accept returns the next connection within the limits.
func (l *limited) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, displaced := l.add(accepted)
		if displaced != nil {
			_ = displaced.Close()
		}
		if c != nil {
			return c, nil
		}
		_ = accepted.Close()
	}
}

// add returns the connection with its place, or nil if it gets none, and the connection whose place it took.
func (l *limited) add(accepted net.Conn) (c, displaced *connection) {
	address := addressOf(accepted)
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.from[address]
	if own != nil && own.Len() >= maxFromAddress {
		return nil, nil
	}
	if l.open >= maxConnections {
		most := l.greediest()
		if own != nil && own.Len()+1 >= most.Len() {
			return nil, nil // the address would have as many as the one that gives a place
		}
		displaced = most.Front().Value.(*connection)
		l.remove(displaced)
	}
	if own = l.from[address]; own == nil {
		own = list.New()
		l.from[address] = own
	}
	c = &connection{Conn: accepted, limited: l, address: address}
	c.place = own.PushBack(c)
	l.open++
	return c, displaced
}

// greediest returns the connections of the address that has the most.
func (l *limited) greediest() *list.List {
	var most *list.List
	for _, open := range l.from {
		if most == nil || open.Len() > most.Len() {
			most = open
		}
	}
	return most
}

// remove releases the place of a connection, once. The caller holds the lock.
func (l *limited) remove(c *connection) {
	if c.place == nil {
		return
	}
	own := l.from[c.address]
	own.Remove(c.place)
	c.place = nil
	l.open--
	if own.Len() == 0 {
		delete(l.from, c.address)
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
	limited *limited
	address string
	place   *list.Element // nil once it is released
}

// Close closes the connection.
func (c *connection) Close() error {
	c.limited.mu.Lock()
	c.limited.remove(c)
	c.limited.mu.Unlock()
	return c.Conn.Close()
}

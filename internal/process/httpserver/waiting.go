package httpserver

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

const (
	// maxWaiting is the maximum weight of all waiting connections, in bytes. It stands for some 200 MiB of memory: a header
	// takes up to 16 times its size in short fields, and a connection that has sent nothing some 40 KiB.
	maxWaiting = 8 << 20
	// emptyWeight is the weight of a connection without the bytes that it has sent.
	emptyWeight = 2 << 10
)

// BoundWaiting bounds the memory of the connections of a server that wait for a request or for the rest of its header, since a client needs no
// credential for these. It returns the listener that the server must serve, without TLS, and sets the hook ConnState
// of the server. When the connections have sent too much or are too many, the oldest one of the address with the most is
// closed. A request has none of these bounds once its header is complete.
func BoundWaiting(server *http.Server, listener net.Listener) net.Listener {
	w := &waiting{Listener: listener, from: map[string]*waitingAddress{}}
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		conn, ok := c.(*waitingConnection)
		if !ok {
			return
		}
		switch state {
		case http.StateNew: // waits since it was accepted
		case http.StateIdle:
			w.leave(conn)
			w.add(conn, emptyWeight)
		case http.StateActive, http.StateHijacked, http.StateClosed:
			w.leave(conn)
		}
	}
	return w
}

// waiting keeps the connections of each address that wait, the oldest first.
type waiting struct {
	net.Listener

	mu   sync.Mutex
	sum  int64 // the weight of all
	from map[string]*waitingAddress
}

type waitingAddress struct {
	sum   int64
	conns *list.List
}

// Accept returns the next connection, which waits.
func (w *waiting) Accept() (net.Conn, error) {
	accepted, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &waitingConnection{Conn: accepted, waiting: w, address: addressOf(accepted)}
	w.add(c, emptyWeight)
	return c, nil
}

// add makes a connection wait, or adds to its weight, and closes others while the sum is too large.
func (w *waiting) add(c *waitingConnection, weight int64) {
	w.mu.Lock()
	own := w.from[c.address]
	if own == nil {
		own = &waitingAddress{conns: list.New()}
		w.from[c.address] = own
	}
	if c.place == nil {
		c.place = own.conns.PushBack(c)
	}
	c.weight += weight
	own.sum += weight
	w.sum += weight
	var closed []*waitingConnection
	for w.sum > maxWaiting {
		oldest := w.greediest().conns.Front().Value.(*waitingConnection)
		w.remove(oldest)
		closed = append(closed, oldest)
	}
	w.mu.Unlock()
	for _, c := range closed {
		_ = c.Conn.Close()
	}
}

// greediest returns the address with the greatest weight.
func (w *waiting) greediest() *waitingAddress {
	var most *waitingAddress
	for _, from := range w.from {
		if most == nil || from.sum > most.sum {
			most = from
		}
	}
	return most
}

// leave ends the wait of a connection.
func (w *waiting) leave(c *waitingConnection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(c)
}

// remove ends the wait of a connection, if it waits. The caller holds the lock.
func (w *waiting) remove(c *waitingConnection) {
	if c.place == nil {
		return
	}
	own := w.from[c.address]
	own.conns.Remove(c.place)
	own.sum -= c.weight
	w.sum -= c.weight
	c.place, c.weight = nil, 0
	if own.conns.Len() == 0 {
		delete(w.from, c.address)
	}
}

// waitingConnection weighs what it receives while it waits.
type waitingConnection struct {
	net.Conn
	waiting *waiting
	address string
	// place and weight are set while the connection waits; the lock of waiting guards them.
	place  *list.Element
	weight int64
}

// Read reads from the connection.
func (c *waitingConnection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.waiting.mu.Lock()
	waits := c.place != nil
	c.waiting.mu.Unlock()
	if waits && n > 0 {
		c.waiting.add(c, int64(n))
	}
	return n, err
}

// Close closes the connection.
func (c *waitingConnection) Close() error {
	c.waiting.leave(c)
	return c.Conn.Close()
}

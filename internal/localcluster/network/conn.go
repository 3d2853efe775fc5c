package network

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/internal/process/pki"
)

// queue is a listener that accepts connections from within the process.
type queue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (q *queue) push(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return &net.UnixAddr{Name: "within", Net: "unix"} }

// tracker records the clients' connections, to close them all at the end:
// http.Server does not track hijacked connections, which became tunnels.
type tracker struct {
	mu     sync.Mutex
	closed bool
	conns  map[*trackedConn]bool
	// serving counts the requests and connections that are being served.
	serving sync.WaitGroup
}

// trackedListener adds accepted connections to the tracker.
type trackedListener struct {
	net.Listener
	tracker *tracker
}

// Accept implements net.Listener.
func (l trackedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &trackedConn{Conn: conn, tracker: l.tracker}
	l.tracker.mu.Lock()
	defer l.tracker.mu.Unlock()
	if l.tracker.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	if l.tracker.conns == nil {
		l.tracker.conns = map[*trackedConn]bool{}
	}
	l.tracker.conns[c] = true
	return c, nil
}

type trackedConn struct {
	net.Conn
	tracker *tracker
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.tracker.mu.Lock()
	delete(c.tracker.conns, c)
	c.tracker.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the writing side of the connection, and returns the error of that.
func (c *trackedConn) CloseWrite() error { return closeWrite(c.Conn) }

// begin adds one to serving. It returns false after close.
func (t *tracker) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.serving.Add(1)
	return true
}

// close closes all connections and waits until nothing is being served, at most for
// the patience.
func (t *tracker) close(patience time.Duration) error {
	t.mu.Lock()
	t.closed = true
	open := make([]*trackedConn, 0, len(t.conns))
	for c := range t.conns {
		open = append(open, c)
	}
	t.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
	done := make(chan struct{})
	go func() {
		t.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return errors.New("a client of the network is still being served")
	}
}

var errNoHalfClose = errors.New("the connection cannot be closed by half")

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errNoHalfClose
}

// peekedConn is a connection whose first bytes are in a buffer.
type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

// Read implements net.Conn.
func (c *peekedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite closes the writing side of the connection, and returns the error of that.
func (c *peekedConn) CloseWrite() error { return closeWrite(c.Conn) }

// peekPatience is the time in which a client must send its first byte.
const peekPatience = 30 * time.Second

// peek waits for the first byte of a connection. It returns the byte and a
// connection from which the byte can be read again. After an error it closes the
// connection.
func peek(c net.Conn) (net.Conn, byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(peekPatience))
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	if err != nil {
		_ = c.Close()
		return nil, 0, err
	}
	_ = c.SetReadDeadline(time.Time{})
	return &peekedConn{Conn: c, r: r}, first[0], nil
}

// certificates issues and caches certificates for mapped hosts.
type certificates struct {
	ca *pki.Authority
	mu sync.Mutex
	by map[string]*tls.Certificate
}

// get implements tls.Config.GetCertificate. The certificate names the host to which
// the connection was made, whatever name the client requests. A client that checks
// the name notices a difference.
func (c *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	conn, ok := hello.Conn.(*mappedConn)
	if !ok {
		return nil, errors.New("the connection leads to no mapped host")
	}
	name := conn.to.name
	c.mu.Lock()
	defer c.mu.Unlock()
	if cert := c.by[name]; cert != nil {
		return cert, nil
	}
	pair, err := c.ca.Issue(pki.Request{CommonName: name, Hosts: []string{name}})
	if err != nil {
		return nil, err
	}
	cert, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	if c.by == nil {
		c.by = map[string]*tls.Certificate{}
	}
	c.by[name] = &cert
	return &cert, nil
}

// systemRoots returns the system's trusted certificates, from the files in which
// Linux distributions and macOS keep them.
func systemRoots() []byte {
	for _, file := range []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
	} {
		if content, err := os.ReadFile(file); err == nil {
			return content
		}
	}
	return nil
}

// tunnel copies in both directions until both sides have ended. It passes the end of
// one side on to the other side as a half close.
func tunnel(a, b net.Conn) {
	var both sync.WaitGroup
	pump := func(dst, src net.Conn) {
		if _, err := io.Copy(dst, src); err != nil || closeWrite(dst) != nil {
			// Nothing can be sent any more, so the other direction ends too.
			_ = dst.Close()
			_ = src.Close()
		}
	}
	both.Go(func() { pump(a, b) })
	both.Go(func() { pump(b, a) })
	both.Wait()
	_ = a.Close()
	_ = b.Close()
}

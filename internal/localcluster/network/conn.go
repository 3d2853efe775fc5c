package network

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/internal/localcluster/pki"
)

type syscallConn = syscall.RawConn

// queue is a listener whose connections come from within the process.
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

// peekedConn is a connection some of whose bytes have been looked at.
type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

// Read implements net.Conn.
func (c *peekedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// peekPatience is how long a client may take to send its first byte.
const peekPatience = 30 * time.Second

// peek waits for the first byte of a connection and returns it together with a
// connection on which it can be read again.
func peek(c net.Conn) (net.Conn, byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(peekPatience))
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	if err != nil {
		return nil, 0, err
	}
	_ = c.SetReadDeadline(time.Time{})
	return &peekedConn{Conn: c, r: r}, first[0], nil
}

// namedConn remembers which host a connection was made to.
type namedConn struct {
	net.Conn
	name string
}

// certificates issues and keeps certificates for mapped hosts.
type certificates struct {
	ca *pki.Authority
	mu sync.Mutex
	by map[string]*tls.Certificate
}

// get implements tls.Config.GetCertificate. The name is that of the host that
// the connection was made to, whatever the client asks for, so that a client
// that checks the name notices a difference.
func (c *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := hello.ServerName
	if named, ok := hello.Conn.(*namedConn); ok {
		name = named.name
	}
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

// systemRoots returns the system's trusted certificates, from the places where
// Linux distributions and macOS keep them as one file.
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

// tunnel copies both ways until both sides have ended. A side that has ended
// its stream is told to the other one (a half close), as far as it can be.
func tunnel(a, b net.Conn) {
	var both sync.WaitGroup
	pump := func(dst, src net.Conn) {
		_, err := io.Copy(dst, src)
		half, ok := dst.(interface{ CloseWrite() error })
		if err == nil && ok {
			_ = half.CloseWrite()
			return
		}
		_ = dst.Close()
	}
	both.Go(func() { pump(a, b) })
	both.Go(func() { pump(b, a) })
	both.Wait()
	_ = a.Close()
	_ = b.Close()
}

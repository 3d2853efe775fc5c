package proxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// idleTimeout is how long an idle connection to the API server is kept.
	idleTimeout = 90 * time.Second
	// maxAnswerHeader is the maximum size of an answer's header, in bytes, and
	// maxInformational the maximum number of informational answers before it. Both values
	// are taken from net/http.
	maxAnswerHeader, maxInformational = 10 << 20, 5
)

// inlineTransport is a transport for requests without a body: it writes the request and
// reads the answer in the goroutine of the caller, over a connection that serves no other
// request at the same time. net/http has two goroutines for each connection, and passing a
// request and its answer between the three took a quarter of the time that the proxy adds
// to a GET. All other requests use the transport of net/http.
//
// inlineTransport writes and parses messages with net/http, which decides where a message
// ends.
type inlineTransport struct {
	other   http.RoundTripper
	host    *url.URL
	address string
	dialer  tls.Dialer

	mu   sync.Mutex
	idle []*inlineConn // the most recently used connection is the last
}

// newInlineTransport returns a transport to a host with TLS. It returns other for a host
// without TLS, and for a host that the environment reaches through a proxy.
func newInlineTransport(host *url.URL, config *tls.Config, dialer *net.Dialer, other *http.Transport) (http.RoundTripper, error) {
	by, err := other.Proxy(&http.Request{URL: host})
	if err != nil {
		return nil, fmt.Errorf("cannot read the proxies of the environment: %w", err)
	}
	if host.Scheme != "https" || by != nil {
		return other, nil
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	return &inlineTransport{
		other: other, host: host, address: net.JoinHostPort(host.Hostname(), cmp.Or(host.Port(), "443")),
		dialer: tls.Dialer{NetDialer: dialer, Config: config},
	}, nil
}

// RoundTrip implements http.RoundTripper. Like the transport of net/http, it sends a
// request again if an idle connection was closed before it answered.
func (b *inlineTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !b.takes(r) {
		return b.other.RoundTrip(r)
	}
	if conn := b.reuse(); conn != nil {
		response, err := conn.roundTrip(r)
		if err == nil || conn.answered || r.Context().Err() != nil {
			return response, err
		}
	}
	conn, err := b.dial(r.Context())
	if err != nil {
		return nil, err
	}
	return conn.roundTrip(r)
}

// takes reports whether this transport sends a request itself.
func (b *inlineTransport) takes(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.Body == nil || r.Body == http.NoBody) &&
		r.ContentLength == 0 && len(r.TransferEncoding) == 0 && len(r.Trailer) == 0 &&
		r.URL.Scheme == b.host.Scheme && r.URL.Host == b.host.Host &&
		r.Header.Get("Upgrade") == "" && r.Header.Get("Expect") == "" && r.Header.Get("Connection") == ""
}

func (b *inlineTransport) dial(ctx context.Context) (*inlineConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := b.dialer.DialContext(ctx, "tcp", b.address)
	if err != nil {
		return nil, err
	}
	c := &inlineConn{Conn: conn.(*tls.Conn), way: b}
	c.reader, c.writer = bufio.NewReader(c), bufio.NewWriter(c)
	return c, nil
}

// reuse returns an idle connection, or nil if there is none.
func (b *inlineTransport) reuse() *inlineConn {
	for {
		b.mu.Lock()
		last := len(b.idle) - 1
		if last < 0 {
			b.mu.Unlock()
			return nil
		}
		conn := b.idle[last]
		b.idle[last] = nil
		b.idle = b.idle[:last]
		b.mu.Unlock()
		// The timer may have fired just now.
		if conn.expire.Stop() && conn.quiet() {
			return conn
		}
		_ = conn.Close()
	}
}

// keep adds a connection to the idle connections.
func (b *inlineTransport) keep(conn *inlineConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.idle) >= defaultInFlight {
		_ = conn.Close()
		return
	}
	if conn.expire == nil {
		conn.expire = time.AfterFunc(idleTimeout, func() { b.drop(conn) })
	} else {
		conn.expire.Reset(idleTimeout)
	}
	b.idle = append(b.idle, conn)
}

// drop closes a connection that has been idle for too long.
func (b *inlineTransport) drop(conn *inlineConn) {
	b.mu.Lock()
	for i, c := range b.idle {
		if c == conn {
			b.idle = append(b.idle[:i], b.idle[i+1:]...)
			break
		}
	}
	b.mu.Unlock()
	_ = conn.Close()
}

// inlineConn is a connection that serves one request at a time.
type inlineConn struct {
	*tls.Conn
	way    *inlineTransport
	reader *bufio.Reader
	writer *bufio.Writer
	expire *time.Timer // nil before the connection is idle for the first time
	// left is the number of bytes that may still be read.
	left int64
	// answered is true once bytes of the answer to the current request have arrived.
	answered bool
	// under is the context of the request. The end of the context interrupts the
	// connection. release cancels this, and returns false if the connection is interrupted
	// already.
	under   context.Context
	release func() bool
}

// Read implements io.Reader. It returns an error after left bytes.
func (c *inlineConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("the header of the answer is too large")
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.answered = c.answered || n > 0
	return n, err
}

// roundTrip sends a request and reads the header of its answer. It closes the connection
// after an error.
func (c *inlineConn) roundTrip(r *http.Request) (*http.Response, error) {
	c.answered, c.left = false, maxAnswerHeader
	c.under = r.Context()
	c.release = context.AfterFunc(c.under, func() { _ = c.SetDeadline(expiredDeadline) })
	response, err := c.exchange(r)
	if err != nil {
		c.end(false)
		return nil, cmp.Or(c.under.Err(), err) // prefer the context's error to the error of the deadline
	}
	c.left = math.MaxInt64
	keep := !response.Close && !r.Close
	if response.Body == http.NoBody {
		c.end(keep)
		return response, nil
	}
	response.Body = &inlineBody{ReadCloser: response.Body, conn: c, keep: keep}
	return response, nil
}

func (c *inlineConn) exchange(r *http.Request) (*http.Response, error) {
	if err := r.Write(c.writer); err != nil {
		return nil, err
	}
	if err := c.writer.Flush(); err != nil {
		return nil, err
	}
	for range maxInformational + 1 {
		response, err := http.ReadResponse(c.reader, r)
		if err != nil {
			return nil, err
		}
		if response.StatusCode >= http.StatusOK {
			return response, nil
		}
		if response.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("the API server changes the protocol and was not asked to")
		}
	}
	return nil, errors.New("the API server does not come to its answer")
}

// expiredDeadline is in the past: reads and writes return at once.
var expiredDeadline = time.Unix(1, 0)

// quiet reports whether an idle connection can be used: it is open and has no unread
// bytes. Bytes that arrived for no request must not become the answer to the next one.
func (c *inlineConn) quiet() bool {
	// Bytes in the buffer of the reader.
	_ = c.SetReadDeadline(expiredDeadline)
	if _, err := c.reader.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	// Bytes that the system has received and the program has not read.
	socket, ok := c.NetConn().(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = raw.Read(func(fd uintptr) bool {
		var some [1]byte
		_, _, err := unix.Recvfrom(int(fd), some[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		nothing = errors.Is(err, unix.EAGAIN)
		return true
	})
	return err == nil && nothing
}

// end ends the use of a connection. It keeps the connection if keep is true, if the context
// has not ended and if no unread bytes are left. Otherwise it closes the connection.
func (c *inlineConn) end(keep bool) {
	if c.release() && keep && c.reader.Buffered() == 0 {
		c.way.keep(c)
		return
	}
	_ = c.Close()
}

// inlineBody is the body of an answer. Its end, or Close, ends the use of the connection.
type inlineBody struct {
	io.ReadCloser
	conn  *inlineConn
	keep  bool
	ended atomic.Bool
}

// Read implements io.Reader.
func (b *inlineBody) Read(p []byte) (int, error) {
	if b.ended.Load() {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = cmp.Or(b.conn.under.Err(), err)
	}
	if err != nil && b.ended.CompareAndSwap(false, true) {
		b.conn.end(b.keep && errors.Is(err, io.EOF))
	}
	return n, err
}

// Close implements io.Closer. If the answer was not read to its end, Close closes the
// connection.
func (b *inlineBody) Close() error {
	if b.ended.CompareAndSwap(false, true) {
		b.conn.end(false)
	}
	return nil
}

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
	// idleTimeout is how long a connection to the API server is kept for another
	// request.
	idleTimeout = 90 * time.Second
	// maxAnswerHeader is the maximum size of an answer's header, in bytes, and
	// maxInformational the maximum number of informational answers before it. Both values
	// are taken from net/http.
	maxAnswerHeader, maxInformational = 10 << 20, 5
)

// inlineTransport is a transport for requests without a body: it writes the request and reads the
// answer in the goroutine of the caller, over a connection that no other request uses
// meanwhile. net/http has two goroutines for each connection, and passing a request and
// its answer between the three took a quarter of the time that the proxy adds to a GET.
// All other requests use the transport of net/http.
//
// brief writes and parses messages with net/http, which decides where a message ends.
type inlineTransport struct {
	other   http.RoundTripper
	host    *url.URL
	address string
	dialer  tls.Dialer

	mu   sync.Mutex
	idle []*inlineConn // the last used connection is at the end
}

// newInlineTransport makes a way to a host that is reached by TLS. Other hosts, and those
// behind a proxy of the environment, are left to the other way.
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

// RoundTrip implements http.RoundTripper. Like net/http's, it sends a request again
// that a connection which has been idle was closed for.
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

// takes says whether a request goes this way.
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

// reuse takes a connection that is idle; nil if there is none.
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
		// Its time may have come just now.
		if conn.expire.Stop() && conn.quiet() {
			return conn
		}
		_ = conn.Close()
	}
}

// keep keeps a connection for the next request.
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

// inlineConn is a connection that one request at a time uses.
type inlineConn struct {
	*tls.Conn
	way    *inlineTransport
	reader *bufio.Reader
	writer *bufio.Writer
	expire *time.Timer // nil until it has been idle
	// left is how many bytes may still be read.
	left int64
	// answered says that something has come for the request that is under way.
	answered bool
	// under is the context of the request; release ends that it ends the connection,
	// and says false if it does so already.
	under   context.Context
	release func() bool
}

// Read implements io.Reader for the reader.
func (c *inlineConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("the header of the answer is too large")
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.answered = c.answered || n > 0
	return n, err
}

// roundTrip sends a request and reads the header of its answer. After an error the
// connection is closed.
func (c *inlineConn) roundTrip(r *http.Request) (*http.Response, error) {
	c.answered, c.left = false, maxAnswerHeader
	c.under = r.Context()
	c.release = context.AfterFunc(c.under, func() { _ = c.SetDeadline(expiredDeadline) })
	response, err := c.exchange(r)
	if err != nil {
		c.end(false)
		return nil, cmp.Or(c.under.Err(), err) // not the deadline that is set with the former
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

// expiredDeadline is a deadline after which nothing is waited for.
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

// end ends the use of a connection. It is kept if the answer has been read to its
// end and nothing came after it.
func (c *inlineConn) end(keep bool) {
	if c.release() && keep && c.reader.Buffered() == 0 {
		c.way.keep(c)
		return
	}
	_ = c.Close()
}

// inlineBody is the body of an answer, which ends the use of its connection.
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

// Close implements io.Closer. An answer that was not read to its end is not waited for.
func (b *inlineBody) Close() error {
	if b.ended.CompareAndSwap(false, true) {
		b.conn.end(false)
	}
	return nil
}

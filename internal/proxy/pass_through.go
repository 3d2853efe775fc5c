package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// transports holds the transports to the API server. The transports for callers' requests
// have no credentials: a request that loses its token is anonymous, and not the proxy's.
type transports struct {
	// short serves upgrades and requests with a short answer. It uses HTTP/1.1, which is
	// faster for them and needed for upgrades.
	short http.RoundTripper
	// long serves watches over HTTP/2, so that many watches share a connection.
	long http.RoundTripper
	// own and ownLong are short and long with the proxy's credentials.
	own, ownLong http.RoundTripper
}

// newTransports returns the transports to the API server.
func newTransports(config *rest.Config) (transports, error) {
	var t transports
	nobody := rest.AnonymousClientConfig(config)
	for _, way := range []struct {
		transport *http.RoundTripper
		config    *rest.Config
		http2     bool
	}{
		{&t.short, nobody, false},
		{&t.long, nobody, true},
		{&t.own, config, false},
		{&t.ownLong, config, true},
	} {
		made, err := newTransport(way.config, way.http2)
		if err != nil {
			return t, err
		}
		*way.transport = made
	}
	return t, nil
}

// newTransport returns a transport with the credentials of the configuration. Unlike
// client-go's transport, it keeps as many idle connections as there may be requests in
// flight.
func newTransport(config *rest.Config, http2 bool) (http.RoundTripper, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: defaultInFlight,
		IdleConnTimeout:     idleTimeout,
		// Compressed answers pass unchanged.
		DisableCompression: true,
		ForceAttemptHTTP2:  http2,
		HTTP2: &http.HTTP2Config{
			// Pings detect a dead connection, so that its watches end.
			SendPingTimeout: keepAlive, PingTimeout: dialTimeout,
			MaxReceiveBufferPerStream: maxUnread,
		},
	}
	return rest.HTTPWrappersForConfig(config, transport)
}

const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
	// maxUnread is the maximum number of bytes of a watch that the proxy holds for a client that
	// does not read it. Go's default of 4 MiB would let one user fill the memory.
	maxUnread = 16 << 10
	// idleTimeout is how long an idle connection to the API server is kept.
	idleTimeout = 90 * time.Second
)

// RoundTrip sends a request by the transport for its verb and credential. It returns the
// transport's error, or an error for a request that no filter has parsed.
func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	c := callFrom(r.Context())
	switch {
	case c == nil:
		return nil, errors.New("the request was not read")
	case c.credential.certificateUser != nil && c.upgrade:
		return t.own.RoundTrip(r)
	case c.credential.certificateUser != nil:
		return t.ownLong.RoundTrip(r)
	case c.info.Verb == "watch" && !c.upgrade:
		return t.long.RoundTrip(r)
	}
	return t.short.RoundTrip(r)
}

// newReverseProxy returns the reverse proxy for requests that the proxy does not answer itself.
func (p *Proxy) newReverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:  &p.transports,
		Rewrite:    p.rewrite,
		BufferPool: &buffers{},
		ErrorLog:   slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		ModifyResponse: func(response *http.Response) error {
			if c := callFrom(response.Request.Context()); c.info.Verb == "watch" && response.StatusCode == http.StatusOK {
				response.Body = newDrainable(response.Request.Context(), response.Body, func(ctx context.Context) bool { return p.isUnauthorized(ctx, c) })
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var tooLarge *http.MaxBytesError
			switch {
			case errors.As(err, &tooLarge):
				writeError(w, r.Header.Get("Accept"), refuse("size", apierrors.NewRequestEntityTooLargeError("the body is too large")), p.metrics)
			case errors.Is(err, context.DeadlineExceeded):
				writeError(w, r.Header.Get("Accept"), refuse("timeout", apierrors.NewTimeoutError("the API server has not answered in time", 1)), p.metrics)
			default:
				p.log.Debug("cannot pass a request on", "error", err)
				failed := uncertain
				if readOnly(r.Method) || neverSent(err) {
					failed = unavailable
				}
				writeError(w, r.Header.Get("Accept"), failed(errNoConnection), p.metrics)
			}
		},
	}
}

// readOnly reports whether requests with a method change nothing.
func readOnly(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// neverSent reports whether a request failed because the proxy could not connect to the API server.
func neverSent(err error) bool {
	var connection *net.OpError
	return errors.As(err, &connection) && connection.Op == "dial"
}

// passThrough passes a request on to the API server. It is the end of the filter chain.
func (p *Proxy) passThrough(w *recorder, r *http.Request, c *requestCall) error {
	w.answer = "passed"
	if c.info.Verb == "watch" {
		p.metrics.watches.Inc()
		defer p.metrics.watches.Dec()
	}
	p.reverseProxy.ServeHTTP(w, r)
	return nil
}

func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	// The path and the query stay unchanged, so that the API server decides about the
	// client's own bytes.
	pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = p.host.Scheme, p.host.Host, ""
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	for name := range pr.Out.Header {
		// Only a front proxy may set these headers, and this proxy is none.
		if strings.HasPrefix(name, "X-Remote-") {
			delete(pr.Out.Header, name)
		}
	}
	c := callFrom(pr.In.Context())
	if who := c.credential.certificateUser; who != nil {
		stripImpersonation(pr.Out.Header)
		pr.Out.Header.Set("Impersonate-User", who.GetName())
		for _, g := range who.GetGroups() {
			pr.Out.Header.Add("Impersonate-Group", g)
		}
		return
	}
	if c.credential.bearer {
		pr.Out.Header.Set("Authorization", "Bearer "+c.credential.token)
	}
}

// drainable is the body of a watch that the proxy can end with io.EOF, so that the client
// starts another watch.
type drainable struct {
	io.ReadCloser
	stopped atomic.Bool
	done    context.CancelFunc
}

// newDrainable returns a body that ends when over returns true. over returns false when its
// context ends.
func newDrainable(ctx context.Context, body io.ReadCloser, over func(context.Context) bool) io.ReadCloser {
	ctx, done := context.WithCancel(ctx)
	d := &drainable{ReadCloser: body, done: done}
	go func() {
		if over(ctx) {
			d.stopped.Store(true)
			_ = body.Close()
		}
	}()
	return d
}

func (d *drainable) Read(b []byte) (int, error) {
	n, err := d.ReadCloser.Read(b)
	if err != nil && d.stopped.Load() {
		err = io.EOF
	}
	return n, err
}

func (d *drainable) Close() error {
	d.done()
	return d.ReadCloser.Close()
}

// buffers is a pool of the buffers for copying answers.
type buffers struct{ pool sync.Pool }

const bufferSize = 16 << 10

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }

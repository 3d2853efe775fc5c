package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/client-go/rest"
)

// spoken is a server that sends given bytes as answers, and counts its connections.
type spoken struct {
	url         string
	connections atomic.Int64
}

// speak starts a server. answer gets the number of the connection and the number of the
// request on it, both from 1. It returns the parts of the answer, each of which is a TLS
// record, and whether the connection stays open.
func speak(t *testing.T, answer func(connection, request int64) (parts []string, goesOn bool)) *spoken {
	t.Helper()
	secured := httptest.NewTLSServer(nil)
	config := secured.TLS.Clone()
	secured.Close()
	config.NextProtos = nil
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &spoken{url: "https://" + listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(&gathered{Conn: conn}, config, answer)
		}
	}()
	return s
}

// gathered is a connection that can buffer writes and send them at once.
type gathered struct {
	net.Conn
	keeps bool
	kept  bytes.Buffer
}

func (g *gathered) Write(b []byte) (int, error) {
	if g.keeps {
		return g.kept.Write(b)
	}
	return g.Conn.Write(b)
}

func (s *spoken) serve(below *gathered, config *tls.Config, answer func(connection, request int64) ([]string, bool)) {
	conn := tls.Server(below, config)
	defer conn.Close()
	number, requests := s.connections.Add(1), bufio.NewReader(conn)
	for i := int64(1); ; i++ {
		r, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		parts, goesOn := answer(number, i)
		below.keeps = true
		for _, part := range parts {
			if _, err := io.WriteString(conn, part); err != nil {
				return
			}
		}
		below.keeps = false
		if _, err := below.kept.WriteTo(below.Conn); err != nil || !goesOn {
			return
		}
	}
}

// way returns a transport to the server.
func (s *spoken) way(t *testing.T) http.RoundTripper {
	t.Helper()
	way, err := newTransport(&rest.Config{Host: s.url, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, false)
	if err != nil {
		t.Fatal(err)
	}
	return way
}

// ask sends a request and returns a text of the answer.
func (s *spoken) ask(ctx context.Context, t *testing.T, way http.RoundTripper, method string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.url+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := way.RoundTrip(r)
	if err != nil {
		return "error"
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Sprintf("%d %s, error", response.StatusCode, body)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, body)
}

func plain(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestBrief sends three requests, one after the other, and checks that each gets its own
// answer, and that a connection is used again only if the previous answer has no bytes
// left.
func TestBrief(t *testing.T) {
	t.Parallel()
	always := func(parts ...string) func(int64, int64) ([]string, bool) {
		return func(int64, int64) ([]string, bool) { return parts, true }
	}
	for _, tc := range []struct {
		reason, method string
		answer         func(connection, request int64) ([]string, bool)
		want           string // the answers to all three
		connections    int64
	}{
		{"a length", "GET", always(plain("one")), "200 one", 1},
		{"nothing", "GET", always("HTTP/1.1 204 No Content\r\n\r\n"), "204 ", 1},
		{"a length of nothing", "GET", always(plain("")), "200 ", 1},
		{"chunks", "GET", always("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n", "1\r\n!\r\n0\r\n\r\n"), "200 one!", 1},
		{"a header only", "HEAD", always("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"), "200 ", 1},
		{"an answer until the end of the connection", "GET", func(int64, int64) ([]string, bool) {
			return []string{"HTTP/1.1 200 OK\r\n\r\none"}, false
		}, "200 one", 3},
		{"an older protocol", "GET", always("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\none"), "200 one", 3},
		{"a connection that is to be closed", "GET", always("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\none"), "200 one", 3},
		{"a connection that is closed after each answer", "GET", func(int64, int64) ([]string, bool) {
			return []string{plain("one")}, false
		}, "200 one", 3},
		{"one that is closed before the answer, when it was used before", "GET", func(_, request int64) ([]string, bool) {
			if request > 1 {
				return nil, false
			}
			return []string{plain("one")}, true
		}, "200 one", 3},
		{"an answer to nothing, behind the first", "GET", always(plain("one") + plain("theirs")), "200 one", 3},
		{"an answer to nothing, in a record of its own", "GET", always(plain("one"), plain("theirs")), "200 one", 3},
		{"a body that is longer than it says", "GET", always("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none and more"), "200 one", 3},
		{"a body that is shorter than it says", "GET", func(int64, int64) ([]string, bool) {
			return []string{"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\none"}, false
		}, "200 one, error", 3},
		{"a length and chunks", "GET", always("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n"), "200 one", 1},
		{"two lengths", "GET", always("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\none"), "error", 3},
		{"informational answers", "GET", always("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", plain("one")), "200 one", 1},
		{"endless informational answers", "GET", always(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 10) + plain("one")), "error", 3},
		{"another protocol", "GET", always("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), "error", 3},
		{"an endless header", "GET", always("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxAnswerHeader)), "error", 3},
		{"no answer, at the first request", "GET", func(int64, int64) ([]string, bool) { return nil, false }, "error", 3},
		{"no HTTP", "GET", always("SSH-2.0-OpenSSH\r\n\r\n"), "error", 3},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := speak(t, tc.answer)
			way := s.way(t)
			var got []string
			for range 3 {
				got = append(got, s.ask(t.Context(), t, way, tc.method))
			}
			if diff := cmp.Diff([]string{tc.want, tc.want, tc.want}, got); diff != "" {
				t.Error(diff)
			}
			if n := s.connections.Load(); n != tc.connections {
				t.Errorf("want %d connections, got %d", tc.connections, n)
			}
		})
	}
}

// TestBriefIdle checks that bytes that arrive on an idle connection are not an answer to
// the next request.
func TestBriefIdle(t *testing.T) {
	t.Parallel()
	said := make(chan net.Conn, 10)
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "mine") }))
	upstream.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			said <- c
		}
	}
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	s := &spoken{url: upstream.URL}
	way := s.way(t)
	for _, tc := range []struct {
		reason string
		do     func(net.Conn) error
	}{
		{"an answer", func(c net.Conn) error { _, err := io.WriteString(c, plain("theirs")); return err }},
		{"the end", func(c net.Conn) error { return c.Close() }},
		{"time", func(net.Conn) error {
			b := way.(*inlineTransport)
			b.drop(b.idle[0])
			return nil
		}},
	} {
		if got := s.ask(t.Context(), t, way, http.MethodGet); got != "200 mine" {
			t.Errorf("before %s: got %q", tc.reason, got)
		}
		if err := tc.do(<-said); err != nil {
			t.Fatal(err)
		}
		testwait.For(t, tc.reason+" to arrive", patience, func() (bool, string) {
			conns := way.(*inlineTransport).idle
			return len(conns) == 0 || !conns[0].quiet(), "the connection is quiet"
		})
		if got := s.ask(t.Context(), t, way, http.MethodGet); got != "200 mine" {
			t.Errorf("after %s: got %q", tc.reason, got)
		}
		<-said
	}
}

// expiring is a context that expires when its channel is closed.
type expiring struct {
	context.Context
	over <-chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.over }

func (e expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestBriefGivenUp checks that a cancelled request ends, and that its connection is closed.
func TestBriefGivenUp(t *testing.T) {
	t.Parallel()
	came, gone := make(chan struct{}, 10), make(chan struct{}, 10)
	upstream := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			fmt.Fprint(w, "beginning")
			_ = http.NewResponseController(w).Flush()
		}
		came <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	t.Cleanup(upstream.Close)
	way := (&spoken{url: upstream.URL}).way(t)
	for _, tc := range []struct {
		reason, path string
		want         error
	}{
		{"too late, before the header", "/header", context.DeadlineExceeded},
		{"too late, in the body", "/body", context.DeadlineExceeded},
		{"the client goes", "/header", context.Canceled},
	} {
		over := make(chan struct{})
		var ctx context.Context = expiring{t.Context(), over}
		end := sync.OnceFunc(func() { close(over) })
		if errors.Is(tc.want, context.Canceled) {
			ctx, end = context.WithCancel(t.Context())
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		inBody := tc.path == "/body"
		go func() {
			<-came
			if !inBody {
				end()
			}
		}()
		response, err := way.RoundTrip(r)
		if err == nil {
			if inBody {
				end()
			}
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v", tc.reason, err)
		}
		end()
		<-gone
		if n := len(way.(*inlineTransport).idle); n != 0 {
			t.Errorf("%s: %d connections are kept", tc.reason, n)
		}
	}
}

// TestBriefTakes checks that requests with another method, a body or another protocol, and
// requests to another host, use the other transport.
func TestBriefTakes(t *testing.T) {
	t.Parallel()
	s := &spoken{url: "https://server:6443"}
	b := s.way(t).(*inlineTransport)
	for _, tc := range []struct {
		reason string
		change func(*http.Request)
		want   bool
	}{
		{"a GET", func(*http.Request) {}, true},
		{"a HEAD", func(r *http.Request) { r.Method = http.MethodHead }, true},
		{"a DELETE", func(r *http.Request) { r.Method = http.MethodDelete }, false},
		{"a body", func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), 1 }, false},
		{"a body of which the length is not known", func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), -1 }, false},
		{"a body that is announced", func(r *http.Request) { r.Header.Set("Expect", "100-continue") }, false},
		{"another protocol", func(r *http.Request) { r.Header.Set("Connection", "Upgrade"); r.Header.Set("Upgrade", "websocket") }, false},
		{"another host", func(r *http.Request) { r.URL.Host = "elsewhere:6443" }, false},
		{"another scheme", func(r *http.Request) { r.URL.Scheme = "http" }, false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		tc.change(r)
		if got := b.takes(r); got != tc.want {
			t.Errorf("%s: got %v", tc.reason, got)
		}
	}
}

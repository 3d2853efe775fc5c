package server

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tenure-dev/tenure/internal/process/pki"
	"github.com/tenure-dev/tenure/internal/proxy"
)

// limited serves a handler as the command does, and returns a function that connects to it.
func limited(t *testing.T, h http.HandlerFunc, change func(*http.Server)) func(t *testing.T, protocol string) *tls.Conn {
	t.Helper()
	authority, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, authority, dir, "limits")
	log := slog.New(slog.DiscardHandler)
	config, _, err := Options{TLSDir: dir}.loadTLS(t.Context(), nil, log)
	if err != nil {
		t.Fatal(err)
	}
	var all servers
	if err := all.add("127.0.0.1:0", h, config, log); err != nil {
		t.Fatal(err)
	}
	change(all[0].Server)
	ended := make(chan error, 1)
	go func() { ended <- all[0].serve() }()
	t.Cleanup(func() {
		_ = all[0].Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(t *testing.T, protocol string) *tls.Conn {
		t.Helper()
		conn, err := tls.Dial("tcp", all[0].listener.Addr().String(), &tls.Config{RootCAs: authority.Pool(), NextProtos: []string{protocol}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

// short replaces a limit that is too long for a test. It also limits the handshake, which
// takes longer on a busy machine.
const short = 5 * time.Second

// TestSlowHeader checks that the server closes the connection of a client that sends a
// header slowly or not at all.
func TestSlowHeader(t *testing.T) {
	t.Parallel()
	dial := limited(t, func(http.ResponseWriter, *http.Request) { t.Error("there is a request") }, func(s *http.Server) {
		if s.ReadHeaderTimeout != headerTimeout || s.IdleTimeout != idleTimeout {
			t.Errorf("headers may take %s, and connections be idle for %s", s.ReadHeaderTimeout, s.IdleTimeout)
		}
		s.ReadHeaderTimeout = short
	})
	for _, sent := range []string{"", "GET / HT", "GET / HTTP/1.1\r\nHost: proxy\r\nX: "} {
		t.Run(fmt.Sprintf("%q", sent), func(t *testing.T) {
			t.Parallel()
			conn := dial(t, "http/1.1")
			if _, err := io.WriteString(conn, sent); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("the connection is still open: %q", answer)
			}
		})
	}
}

// TestUnfinishedHeaders checks that the oldest of many unfinished headers ends, by either protocol: each takes many times its size.
func TestUnfinishedHeaders(t *testing.T) {
	t.Parallel()
	for protocol, send := range map[string]func(*testing.T, *tls.Conn){
		"http/1.1": func(t *testing.T, conn *tls.Conn) {
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n"+strings.Repeat("a:\r\n", 15<<10))
		},
		"h2": func(t *testing.T, conn *tls.Conn) {
			framer := preface(t, conn)
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(t, request...), EndStream: true})
			for range 4 {
				_ = framer.WriteContinuation(1, false, encode(t, "x", strings.Repeat("~", 9<<10)))
			}
		},
	} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			dial := limited(t, func(http.ResponseWriter, *http.Request) { t.Error("there is a request") }, func(s *http.Server) {
				s.ReadHeaderTimeout = 10 * patience // the bound ends connections earlier
			})
			first := dial(t, protocol)
			send(t, first)
			ended := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, first)
				ended <- err
			}()
			const most = 400
			for range most {
				select {
				case err := <-ended:
					if err != nil && strings.Contains(err.Error(), "timeout") {
						t.Error("the first connection is still open")
					}
					return
				default:
					send(t, dial(t, protocol))
				}
			}
			t.Errorf("%d unfinished headers are open", most)
		})
	}
}

// preface starts HTTP/2 on a connection.
func preface(t *testing.T, conn *tls.Conn) *http2.Framer {
	t.Helper()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	framer.AllowIllegalWrites = true
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return framer
}

func encode(t *testing.T, fields ...string) []byte {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		if err := encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	return block.Bytes()
}

var request = []string{":method", "GET", ":scheme", "https", ":authority", "proxy", ":path", "/"}

// TestEndlessHeader checks that an endless header in HTTP/2 ends the connection before it
// takes much memory.
func TestEndlessHeader(t *testing.T) {
	t.Parallel()
	dial := limited(t, func(http.ResponseWriter, *http.Request) { t.Error("there is a request") }, func(*http.Server) {})
	framer := preface(t, dial(t, "h2"))
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(t, request...), EndStream: true}); err != nil {
		t.Fatal(err)
	}
	// Send up to ten times the maximum header: the server stops reading earlier.
	sent, err := 0, error(nil)
	for i := 0; err == nil && sent < 10*maxHeader; i++ {
		some := encode(t, "x", strings.Repeat("y", 8<<10))
		err = framer.WriteContinuation(1, false, some)
		sent += len(some)
	}
	for err == nil {
		var frame http2.Frame
		if frame, err = framer.ReadFrame(); err != nil {
			break
		}
		if _, gone := frame.(*http2.GoAwayFrame); gone {
			return
		}
	}
	if strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection is still open after a header of %d bytes", sent)
	}
}

// TestUnreadAnswer checks that a client that does not read an answer in time loses the
// answer.
func TestUnreadAnswer(t *testing.T) {
	t.Parallel()
	dial := limited(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answer") }, func(s *http.Server) {
		if s.WriteTimeout != proxy.AnswerTimeout {
			t.Errorf("answers may take %s", s.WriteTimeout)
		}
		s.WriteTimeout = short
	})
	framer := preface(t, dial(t, "h2"))
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(t, request...), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			if strings.Contains(err.Error(), "timeout") {
				t.Fatalf("the answer is still to be sent: %v", err)
			}
			return // the server has closed the connection
		}
		if _, reset := frame.(*http2.RSTStreamFrame); reset {
			return
		}
	}
}

// TestResets checks that streams that are opened and reset at once do not exceed the
// maximum number of concurrent requests of a connection.
func TestResets(t *testing.T) {
	t.Parallel()
	var running, most atomic.Int64
	release := make(chan struct{})
	dial := limited(t, func(http.ResponseWriter, *http.Request) {
		now := running.Add(1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		<-release
		running.Add(-1)
	}, func(*http.Server) {})
	defer close(release)
	conn := dial(t, "h2")
	framer := preface(t, conn)
	read := make(chan string, 1)
	go func() {
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				read <- err.Error()
				return
			}
			if gone, ok := frame.(*http2.GoAwayFrame); ok {
				read <- gone.ErrCode.String()
				return
			}
		}
	}()
	const streams = 20_000
	for i := range uint32(streams) {
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: encode(t, request...), EndStream: true, EndHeaders: true})
		if err == nil {
			err = framer.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}
		if err != nil {
			break // the server has closed the connection
		}
	}
	if got := <-read; strings.Contains(got, "timeout") {
		t.Errorf("the connection is still open: %s", got)
	}
	if got := most.Load(); got == 0 || got > 250 {
		t.Errorf("%d requests ran at a time", got)
	}
}

// TestUnreadBytes checks how many bytes the server holds for a client without a credential over
// HTTP/2: those of a body that nobody reads, and those of a frame that does not end.
func TestUnreadBytes(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	dial := limited(t, func(http.ResponseWriter, *http.Request) { <-release }, func(*http.Server) {})
	t.Cleanup(func() { close(release) })

	framer := preface(t, dial(t, "h2"))
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(t, request...), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WritePing(false, [8]byte{}); err != nil {
		t.Fatal(err)
	}
	stream, connection := uint32(65_535), uint32(65_535) // the protocol's defaults
	for answered := false; !answered; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
				stream = size
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				connection += f.Increment
			}
		case *http2.PingFrame:
			answered = f.IsAck()
		}
	}
	if stream > proxy.ReceiveBuffer || connection > proxy.ReceiveBuffer {
		t.Errorf("a client may send %d bytes of a body and %d of all bodies that nobody reads", stream, connection)
	}

	conn := dial(t, "h2")
	preface(t, conn)
	if _, err := conn.Write([]byte{0x0f, 0xff, 0xff, 0, 0, 0, 0, 0, 1}); err != nil { // the head of a DATA frame of 1 MiB
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	framer = http2.NewFramer(io.Discard, conn)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			if strings.Contains(err.Error(), "timeout") {
				t.Error("the server waits for a frame of 1 MiB")
			}
			return
		}
		if gone, ok := frame.(*http2.GoAwayFrame); ok {
			if gone.ErrCode != http2.ErrCodeFrameSize {
				t.Errorf("got %s", gone.ErrCode)
			}
			return
		}
	}
}

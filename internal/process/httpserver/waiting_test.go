package httpserver

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestBoundWaiting sends large parts of headers from one address, and requests from another.
func TestBoundWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener, release := make(clients), make(chan struct{})
		server := &http.Server{MaxHeaderBytes: 64 << 10, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/long" {
				<-release
			}
		})}
		bounded := BoundWaiting(server, listener).(*waiting)
		ended := make(chan struct{})
		go func() {
			_ = server.Serve(bounded)
			close(ended)
		}()
		// send connects and sends, and reports through the result whether the connection is open.
		send := func(address, text string) (client net.Conn, open func() bool) {
			client, closed := listener.connect(address), make(chan struct{})
			t.Cleanup(func() { _ = client.Close() })
			go func() {
				if _, err := io.WriteString(client, text); err != nil {
					close(closed)
				}
			}()
			synctest.Wait()
			return client, func() bool {
				select {
				case <-closed:
					return false
				default:
				}
				bounded.mu.Lock()
				defer bounded.mu.Unlock()
				for _, from := range bounded.from {
					for e := from.conns.Front(); e != nil; e = e.Next() {
						if e.Value.(*waitingConnection).Conn.RemoteAddr().String() == address {
							return true
						}
					}
				}
				return false
			}
		}
		answered := func(client net.Conn, path string) bool {
			go func() { _, _ = io.WriteString(client, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n") }()
			response, err := http.ReadResponse(bufio.NewReader(client), nil)
			return err == nil && response.StatusCode == http.StatusOK
		}

		long, _ := send("192.0.2.9:1", "GET /long HTTP/1.1\r\nHost: x\r\n\r\n") // its header is complete
		idle, _ := send("192.0.2.8:1", "")
		if !answered(idle, "/") {
			t.Fatal("a request has no answer")
		}
		const part = 32 << 10
		fits := maxWaiting/(part+emptyWeight) - 1
		_, first := send("192.0.2.1:1", "GET / HTTP/1.1\r\n"+strings.Repeat("a:\r\n", part/4))
		for range fits - 1 {
			send("192.0.2.1:2", "GET / HTTP/1.1\r\n"+strings.Repeat("a:\r\n", part/4))
		}
		if !first() {
			t.Error("a header within the bound was cut off")
		}
		for range 2 {
			send("192.0.2.1:3", "GET / HTTP/1.1\r\n"+strings.Repeat("a:\r\n", part/4))
		}
		if first() {
			t.Error("the oldest connection of the address with the most is open")
		}
		if bounded.sum > maxWaiting {
			t.Errorf("the connections that wait weigh %d, want at most %d", bounded.sum, maxWaiting)
		}
		if !answered(idle, "/") {
			t.Error("an idle connection of another address was closed")
		}
		close(release)
		if response, err := http.ReadResponse(bufio.NewReader(long), nil); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("a request whose header was complete has the answer %v and the error %v", response, err)
		}
		close(listener)
		<-ended
		_ = server.Close()
		synctest.Wait()
		if bounded.sum != 0 || len(bounded.from) != 0 {
			t.Errorf("after the end, %d addresses weigh %d", len(bounded.from), bounded.sum)
		}
	})
}

// TestBoundIdle opens connections that send nothing.
func TestBoundIdle(t *testing.T) {
	t.Parallel()
	listener := make(clients)
	bounded := BoundWaiting(&http.Server{}, listener).(*waiting)
	for range maxWaiting/emptyWeight + 10 {
		go listener.connect("192.0.2.1:1")
		if _, err := bounded.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	if n := bounded.from["192.0.2.1"].conns.Len(); n != maxWaiting/emptyWeight {
		t.Errorf("%d connections wait, want %d", n, maxWaiting/emptyWeight)
	}
}

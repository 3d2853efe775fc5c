package httpserver

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// clients is a listener for connections in memory.
type clients chan net.Conn

func (c clients) Accept() (net.Conn, error) {
	accepted, open := <-c
	if !open {
		return nil, net.ErrClosed
	}
	return accepted, nil
}

func (c clients) Close() error { return nil }

func (c clients) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr { return address(f.address) }

type address string

func (address) Network() string { return "tcp" }

func (a address) String() string { return string(a) }

// connect opens a connection, and returns the client's end.
func (c clients) connect(address string) net.Conn {
	client, server := net.Pipe()
	c <- from{server, address}
	return client
}

// TestBounds sends requests that are too large or too slow.
func TestBounds(t *testing.T) {
	t.Parallel()
	const request = "POST / HTTP/1.1\r\nHost: x\r\n"
	for _, tc := range []struct {
		reason, sent string
		// status is the status of the answer, or 0 if the connection ends without one. With unsure, both may happen: the
		// deadlines to read and to write are the same.
		status int
		unsure bool
		ends   time.Duration
	}{
		{"a small request; then the connection is idle", request + "\r\n", http.StatusNotFound, false, idleTimeout},
		{"a header in short lines", request + strings.Repeat("a:\r\n", 4000) + "\r\n", http.StatusRequestHeaderFieldsTooLarge, false, headerTimeout},
		{"a header that does not end", request, 0, false, headerTimeout},
		{"no header", "", 0, false, headerTimeout},
		{"the body of a refused request that does not end", request + "Content-Length: 9\r\n\r\nabc", http.StatusNotFound, true, requestTimeout},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				listener := make(clients)
				server := New(t.Context(), http.NotFoundHandler())
				ended := make(chan error, 1)
				go func() { ended <- server.Serve(Limit(listener)) }()
				client, began := listener.connect("192.0.2.1:1"), time.Now()
				go func() { _, _ = io.WriteString(client, tc.sent) }()
				status := 0
				r := bufio.NewReader(client)
				if response, err := http.ReadResponse(r, nil); err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					status = response.StatusCode
				}
				_, err := r.ReadByte()
				if took := time.Since(began); status != tc.status && (!tc.unsure || status != 0) || !errors.Is(err, io.EOF) || took > tc.ends {
					t.Errorf("answered with %d and %v after %s, want %d and the end of the connection after %s", status, err, took, tc.status, tc.ends)
				}
				_ = client.Close()
				close(listener)
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				_ = server.Close()
			})
		})
	}
}

// TestLimit opens connections from several addresses, and closes them.
func TestLimit(t *testing.T) {
	t.Parallel()
	listener := make(clients)
	limiter := Limit(listener).(*limited)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := limiter.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	open := map[string][]net.Conn{}
	// try reports whether a connection from an address stays open.
	try := func(address string) bool {
		t.Helper()
		client := listener.connect(address)
		t.Cleanup(func() { _ = client.Close() })
		closed := make(chan struct{})
		go func() {
			_, _ = client.Read(make([]byte, 1))
			close(closed)
		}()
		select {
		case c := <-accepted:
			host, _, _ := net.SplitHostPort(address)
			open[host] = append(open[host], c)
			return true
		case <-closed:
			return false
		}
	}
	for _, tc := range []struct {
		reason, address string
		count, want     int
	}{
		{"one address", "192.0.2.1:1", maxFromAddress + 10, maxFromAddress},
		{"the same address as IPv6", "[::ffff:192.0.2.1]:2", 2, 0},
		{"a network", "[2001:db8::1]:1", maxFromAddress - 1, maxFromAddress - 1},
		{"another address of the network", "[2001:db8::2]:1", 2, 1},
		{"another network", "[2001:db8:0:1::1]:1", 2, 2},
		{"a third address", "192.0.2.3:1", maxFromAddress, maxFromAddress},
		{"the last connections, and one of an address with more", "192.0.2.4:1", maxFromAddress, maxFromAddress - 1},
		{"more than there may be in all: in place of those of the addresses with the most", "192.0.2.5:1", 2, 2},
	} {
		got := 0
		for range tc.count {
			if try(tc.address) {
				got++
			}
		}
		if got != tc.want {
			t.Errorf("%s: %d connections are open, want %d", tc.reason, got, tc.want)
		}
	}
	for range 2 { // closing twice releases one place
		_ = open["192.0.2.5"][0].Close()
	}
	limiter.mu.Lock()
	if limiter.open != maxConnections-1 || limiter.from["192.0.2.5"].Len() != 1 {
		t.Errorf("%d connections are open after one was closed, want %d", limiter.open, maxConnections-1)
	}
	limiter.mu.Unlock()
	close(listener)
}

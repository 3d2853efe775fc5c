package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// quiet is an API server whose watches have no events.
func quiet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// TestBodyOfWatch checks that the body of a watch counts in the memory of the user: nobody reads
// it, and over HTTP/2 the server holds it for as long as the watch is open.
func TestBodyOfWatch(t *testing.T) {
	t.Parallel()
	s := facing(t, quiet, Options{})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	for path, body := range map[string]string{"/api/v1/namespaces?watch=true": "hello", "/api/v1/namespaces/a/pods?watch=true": "hello", "/api/v1/namespaces/b/pods?watch=true": ""} {
		r := s.request(t, http.MethodGet, path, "ann")
		want := int64(0)
		if body != "" {
			r.Body, r.ContentLength, want = io.NopCloser(strings.NewReader(body)), -1, ReceiveBuffer
		}
		before := s.proxy.memory.Taken()
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		if got := s.proxy.memory.Taken() - before; got != want || response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
			t.Errorf("%s: want %d bytes, got %d, and %s over %s", path, want, got, response.Status, response.Proto)
		}
	}
}

// TestManyFields checks that the header of a watch counts in the memory of the user, and that a
// header has a maximum number of fields: a field takes many times its text.
func TestManyFields(t *testing.T) {
	t.Parallel()
	s := facing(t, quiet, Options{})
	for _, tc := range []struct {
		reason       string
		fields, size int
		code         string
		taken        int64
	}{
		{"an ordinary header", 15, 100, "HTTP/1.1 200", 0},
		{"a large header", 15, 4 << 10, "HTTP/1.1 200", 50 << 10},
		{"many fields", maxFields - 4, 1, "HTTP/1.1 200", 20 << 10},
		{"too many fields", maxFields, 0, "HTTP/1.1 431", 0},
		{"thousands of fields", 10_000, 0, "HTTP/1.1 431", 0},
	} {
		conn := s.dial(t)
		t.Cleanup(func() { conn.Close() })
		var head strings.Builder
		head.WriteString("GET /api/v1/namespaces/a/pods?watch=true HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer ann\r\n")
		for i := range tc.fields {
			fmt.Fprintf(&head, "x%x:%s\r\n", i, strings.Repeat("y", tc.size))
		}
		before := s.proxy.memory.Taken()
		if _, err := io.WriteString(conn, head.String()+"\r\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, len(tc.code))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != tc.code {
			t.Errorf("%s: want %s, got %q, %v", tc.reason, tc.code, answer, err)
		}
		if got := s.proxy.memory.Taken() - before; got < tc.taken || tc.taken == 0 && got > 0 {
			t.Errorf("%s: want %d bytes taken, got %d", tc.reason, tc.taken, got)
		}
	}
}

package proxy

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSlowBodyOfRefusedRequest checks that the proxy closes the connection of a client that does
// not send the body that it announced, also if the proxy has refused the request before it knew
// the caller. The server reads the rest of a body before it sends an answer.
func TestSlowBodyOfRefusedRequest(t *testing.T) {
	t.Parallel()
	s := facing(t, func(http.ResponseWriter, *http.Request) {}, Options{})
	s.proxy.timeouts.body = 200 * time.Millisecond
	for _, tc := range []struct{ reason, head string }{
		{"no credential", "POST /api/v1/namespaces/a/pods HTTP/1.1\r\n"},
		{"two credentials", "POST /api/v1/namespaces/a/pods HTTP/1.1\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n"},
		{"a watch without a credential", "GET /api/v1/namespaces?watch=true HTTP/1.1\r\n"},
		{"an upgrade without a credential", "POST /api/v1/namespaces/a/pods HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			conn := s.dial(t)
			t.Cleanup(func() { conn.Close() })
			if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "%sHost: proxy\r\nContent-Length: 100\r\n\r\n{", tc.head)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("there is no answer: %v", err)
			}
			defer response.Body.Close()
			if body := readAll(response); response.StatusCode < 400 || strings.Contains(body, "timeout") {
				t.Errorf("got %s %s", response.Status, body)
			}
		})
	}
}

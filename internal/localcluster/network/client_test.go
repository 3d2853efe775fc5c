package network

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestClientAndForget checks that a handler answers the network's own client as it
// answers a process, until Forget removes it.
func TestClientAndForget(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	client := n.Client()
	t.Cleanup(client.CloseIdleConnections)
	for _, prefix := range []string{"/one", "/two"} {
		n.Handle("Sink.example.com:8443", prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.Path)
		}))
	}
	ask := func(reason, address, want string) {
		t.Helper()
		response, err := client.Get(address)
		if err != nil {
			if want != "" || !strings.Contains(err.Error(), "not mapped") {
				t.Errorf("%s: %v", reason, err)
			}
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if got := string(body); err != nil || (response.StatusCode == http.StatusOK) != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %d %q, %v, want %q", reason, response.StatusCode, got, err, want)
		}
	}
	ask("plain", "http://sink.example.com/one/path", "/one/path")
	ask("secure, with the network's certificate", "https://sink.example.com/two", "/two")
	n.Forget("sink.example.com", "/one")
	ask("a forgotten path is gone", "http://sink.example.com/one", "")
	ask("another path of the host is not", "http://sink.example.com/two", "/two")
	n.Forget("sink.example.com", "/two/")
	client.CloseIdleConnections()
	ask("nor is a host of which nothing is left mapped", "https://sink.example.com/two", "")
	n.Forget("sink.example.com", "/two")
}

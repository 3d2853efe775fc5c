package node

import (
	"crypto/tls"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/process/pki"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// forward connects to the kubelet endpoint as the API server does for port-forward.
func (n *testNode) forward(t *testing.T, namespace, pod string) httpstream.Connection {
	t.Helper()
	pair, err := n.ca.Issue(pki.Request{CommonName: "api"})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	transport, err := spdy.NewRoundTripper(&tls.Config{RootCAs: n.ca.Pool(), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+n.Endpoint()+"/portForward/"+namespace+"/"+pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(httpstream.HeaderProtocolVersion, forwardProtocol)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, err := transport.NewConnection(resp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// request sends an HTTP request through a port-forward, as a new connection, and returns the
// answer and the error that kubectl prints.
func request(t *testing.T, conn httpstream.Connection, id, port int) (answer, failure string) {
	t.Helper()
	var streams []httpstream.Stream
	for _, kind := range []string{corev1.StreamTypeError, corev1.StreamTypeData} {
		headers := http.Header{}
		headers.Set(corev1.StreamType, kind)
		headers.Set(corev1.PortHeader, strconv.Itoa(port))
		headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(id))
		stream, err := conn.CreateStream(headers)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	_ = streams[0].Close()
	if _, err := io.WriteString(streams[1], "GET / HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(streams[1])
	if err != nil {
		t.Fatal(err)
	}
	printed, err := io.ReadAll(streams[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(content), string(printed)
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	for _, pod := range []*corev1.Pod{podNamed("platform", "p"), podNamed("tenant", "s")} {
		if err := (provider{n.Node}).CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	n.await(t, "p", "the process runs", isReady)

	process := n.forward(t, "platform", "p")
	for id := range 3 {
		if answer, failure := request(t, process, id, 8080); !strings.HasPrefix(answer, "HTTP/1.1 200 OK") || failure != "" {
			t.Errorf("connection %d: got %q and the error %q", id, answer, failure)
		}
	}
	if answer, failure := request(t, process, 3, 81); answer != "" || !strings.Contains(failure, "none of its processes listens at port 81") {
		t.Errorf("at a port at which no process listens: got %q and the error %q", answer, failure)
	}
	if answer, failure := request(t, n.forward(t, "tenant", "s"), 0, 8080); answer != "" || !strings.Contains(failure, "the Pod is simulated: no program listens there") {
		t.Errorf("of a simulated Pod: got %q and the error %q", answer, failure)
	}

	if err := (provider{n.Node}).DeletePod(t.Context(), podNamed("platform", "p")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-process.CloseChan():
	case <-time.After(time.Minute):
		t.Error("the port-forward does not end with its Pod")
	}
}

// fakeStream is a stream of which only the headers matter.
type fakeStream struct {
	httpstream.Stream

	headers http.Header
	reset   bool
}

func (s *fakeStream) Headers() http.Header { return s.headers }
func (s *fakeStream) Reset() error         { s.reset = true; return nil }

func TestForwardPairs(t *testing.T) {
	t.Parallel()
	pairs := forwardPairs{}
	stream := func(kind, id string) *fakeStream {
		return &fakeStream{headers: http.Header{http.CanonicalHeaderKey(corev1.StreamType): {kind}, http.CanonicalHeaderKey(corev1.PortForwardRequestIDHeader): {id}}}
	}
	for i, step := range []struct {
		kind, id         string
		complete, resets bool
	}{
		{kind: "error", id: "1"},
		{kind: "data", id: "2"},
		{kind: "data", id: "1", complete: true},
		{kind: "data", id: "2", resets: true},
		{kind: "other", id: "3", resets: true},
		{kind: "error", id: "2", complete: true},
	} {
		s := stream(step.kind, step.id)
		if c := pairs.add(s); (c != nil) != step.complete || s.reset != step.resets {
			t.Errorf("step %d: complete %t, reset %t", i, c != nil, s.reset)
		}
	}
	if len(pairs) != 0 {
		t.Errorf("%d connections are left", len(pairs))
	}
}

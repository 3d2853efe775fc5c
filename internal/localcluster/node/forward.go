package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	// forwardProtocol is the kubelet's protocol for port-forward: each forwarded connection has
	// two streams, one for data and one for an error, with the same request ID.
	forwardProtocol = "portforward.k8s.io"
	// forwardIdle is the time after which an idle port-forward ends, as with the kubelet.
	forwardIdle = 4 * time.Hour
)

// servePortForward serves kubectl port-forward to the processes of a Pod. The API server is the
// client.
func (n *Node) servePortForward(w http.ResponseWriter, r *http.Request) {
	p := n.find(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil {
		http.Error(w, "the Pod does not run on this node", http.StatusNotFound)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{forwardProtocol}); err != nil {
		return // Handshake has answered
	}
	streams := make(chan httpstream.Stream)
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		select {
		case streams <- stream:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if conn == nil {
		return // UpgradeResponse has answered
	}
	defer conn.Close()
	conn.SetIdleTimeout(forwardIdle)
	pairs := forwardPairs{}
	for {
		select {
		case stream := <-streams:
			if c := pairs.add(stream); c != nil {
				p.n.running.Go(func() { c.serve(ctx, p) })
			}
		case <-conn.CloseChan():
			return
		case <-ctx.Done():
			return
		}
	}
}

// forwarded is one forwarded connection.
type forwarded struct {
	data, failure httpstream.Stream
}

// forwardPairs are the connections of which one stream has arrived, by request ID.
type forwardPairs map[string]*forwarded

// add adds a stream, and returns its connection if both streams have arrived. It resets streams
// that it cannot use.
func (f forwardPairs) add(stream httpstream.Stream) *forwarded {
	id := stream.Headers().Get(corev1.PortForwardRequestIDHeader)
	c := f[id]
	if c == nil {
		c = &forwarded{}
	}
	switch kind := stream.Headers().Get(corev1.StreamType); {
	case kind == corev1.StreamTypeData && c.data == nil:
		c.data = stream
	case kind == corev1.StreamTypeError && c.failure == nil:
		c.failure = stream
	default:
		_ = stream.Reset()
		return nil
	}
	if c.data != nil && c.failure != nil {
		delete(f, id)
		return c
	}
	f[id] = c
	return nil
}

// serve connects the data stream with a process of the Pod until one of them ends, and writes an
// error to the error stream.
func (c *forwarded) serve(ctx context.Context, p *podState) {
	if err := c.copy(ctx, p); err != nil && ctx.Err() == nil {
		_, _ = io.WriteString(c.failure, err.Error())
	}
	_ = c.failure.Close()
	_ = c.data.Close()
}

func (c *forwarded) copy(ctx context.Context, p *podState) error {
	port, err := strconv.ParseUint(c.data.Headers().Get(corev1.PortHeader), 10, 16)
	if err != nil {
		return fmt.Errorf("cannot forward to port %q: %w", c.data.Headers().Get(corev1.PortHeader), err)
	}
	address, err := p.hostAddress(int(port))
	if err != nil {
		return err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot reach port %d of Pod %s/%s: %w", port, p.namespace, p.name, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, c.data)
		// The process sees the end of the input, and may still answer.
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	if _, err := io.Copy(c.data, conn); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("the connection to port %d of Pod %s/%s broke: %w", port, p.namespace, p.name, err)
	}
	return nil
}

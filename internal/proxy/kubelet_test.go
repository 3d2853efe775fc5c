package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/process/pki"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubelet is a fake node, because the local cluster runs no Pods. It echoes the input of
// exec and port-forward, and sends the second line of a followed log when the test asks for
// it.
type kubelet struct {
	t    *testing.T
	more chan struct{}
}

// startKubelet creates a node in the shared cluster and serves the API server's requests to
// its kubelet, with a certificate of the cluster's authority.
func startKubelet(t *testing.T, name string) *kubelet {
	t.Helper()
	cluster := testcluster.Shared(t)
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(cluster.Dir, "pki", name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	authority, err := pki.LoadAuthority(read("ca.crt"), read("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Request{CommonName: name, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: authority.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{t: t, more: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.portForward)
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", k.logs)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	cluster.Network.AllowEgress(listener.Addr().String())
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	node := &corev1.Node{ObjectMeta: objectMeta("", name), Spec: corev1.NodeSpec{Unschedulable: true}}
	if err := shared.admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	// Patch the node, because controllers also write to it.
	before := node.DeepCopy()
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	if _, err := fmt.Sscan(port, &node.Status.DaemonEndpoints.KubeletEndpoint.Port); err != nil {
		t.Fatal(err)
	}
	if err := shared.admin.Status().Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	return k
}

// runs creates a Pod and reports it as running on the node.
func (k *kubelet) runs(node, namespace, name string) {
	k.t.Helper()
	p := &corev1.Pod{ObjectMeta: objectMeta(namespace, name), Spec: corev1.PodSpec{
		NodeName: node, ServiceAccountName: "owner", Containers: []corev1.Container{{Name: "c", Image: "images.example.com/c"}},
	}}
	if err := shared.admin.Create(k.t.Context(), p); err != nil {
		k.t.Fatal(err)
	}
	before := p.DeepCopy()
	p.Status.Phase = corev1.PodRunning
	if err := shared.admin.Status().Patch(k.t.Context(), p, client.MergeFrom(before)); err != nil {
		k.t.Fatal(err)
	}
}

// upgraded upgrades a request to streams.
func (k *kubelet) upgraded(w http.ResponseWriter, r *http.Request, protocol string) (httpstream.Connection, <-chan httpstream.Stream) {
	if _, err := httpstream.Handshake(r, w, []string{protocol}); err != nil {
		k.t.Errorf("the API server speaks something else: %v", err)
		return nil, nil
	}
	streams := make(chan httpstream.Stream, 16)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	return conn, streams
}

// exec writes the command, and then echoes its input.
func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	conn, streams := k.upgraded(w, r, remotecommand.StreamProtocolV4Name)
	if conn == nil {
		return
	}
	defer conn.Close()
	byType := map[string]httpstream.Stream{}
	for len(byType) < 4 {
		select {
		case stream := <-streams:
			byType[stream.Headers().Get(corev1.StreamType)] = stream
		case <-time.After(patience):
			k.t.Errorf("exec came with the streams %v only", byType)
			return
		}
	}
	out := byType[corev1.StreamTypeStdout]
	fmt.Fprintf(out, "%s runs %s\n", r.PathValue("pod"), strings.Join(r.URL.Query()["command"], " "))
	_, _ = io.Copy(out, byType[corev1.StreamTypeStdin])
	fmt.Fprintln(byType[corev1.StreamTypeStderr], "to the error stream")
	fmt.Fprint(byType[corev1.StreamTypeError], `{"metadata":{},"status":"Success"}`)
	for _, stream := range byType {
		_ = stream.Close()
	}
	<-conn.CloseChan()
}

// portForward echoes the input of each connection.
func (k *kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	conn, streams := k.upgraded(w, r, "portforward.k8s.io")
	if conn == nil {
		return
	}
	defer conn.Close()
	for {
		select {
		case stream := <-streams:
			if stream.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
				_ = stream.Close()
				continue
			}
			go func() {
				fmt.Fprintf(stream, "port %s of %s\n", stream.Headers().Get(corev1.PortHeader), r.PathValue("pod"))
				_, _ = io.Copy(stream, stream)
				_ = stream.Close()
			}()
		case <-conn.CloseChan():
			return
		}
	}
}

func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s says one\n", r.PathValue("pod"))
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	_ = http.NewResponseController(w).Flush()
	select {
	case <-k.more:
		fmt.Fprintln(w, "and two")
	case <-r.Context().Done():
	}
}

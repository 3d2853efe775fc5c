package network

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

func TestLoadBalancerRange(t *testing.T) {
	t.Parallel()
	want := netip.MustParsePrefix("127.25.43.0/24") // 6443 = 25·256 + 43
	if runtime.GOOS != "linux" {
		want = netip.Prefix{}
	}
	if got := LoadBalancerRange("127.0.0.1:6443"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := LoadBalancerRange("nonsense"); got.IsValid() {
		t.Errorf("got %s for an address that is none", got)
	}
}

// onePod has every Pod at one address of this machine.
type onePod string

func (p onePod) HostAddress(string, int) (string, error) { return string(p), nil }

// TestServeLoadBalancers connects to a load balancer of a Service, which gets its address, loses
// it, and names addresses that are not the cluster's to give; then to its node port.
func TestServeLoadBalancers(t *testing.T) {
	t.Parallel()
	pod, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	go func() {
		for {
			conn, err := pod.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "from the Pod")
			_ = conn.Close()
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	pool := netip.MustParsePrefix("127.0.0.1/32")
	at := func(ip string) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }

	front := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "front"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.9",
			Ports: []corev1.ServicePort{{Port: int32(port)}, {Port: int32(port), Protocol: corev1.ProtocolUDP}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "127.0.0.2"}}}},
	}
	client := fake.NewClientset(front, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "front-1", Labels: map[string]string{discoveryv1.LabelServiceName: "front"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(9001))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"198.18.0.1"}}},
	})
	s, err := NewServices(t.Context(), client, onePod(pod.Addr().String()), "127.0.0.1:6443")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeLoadBalancers(ctx, pool, slog.New(slog.DiscardHandler)) }()
	update := func(change func(*corev1.Service)) {
		t.Helper()
		change(front)
		if _, err := client.CoreV1().Services("ns").Update(t.Context(), front, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	answers := func() bool {
		conn, err := net.Dial("tcp", at("127.0.0.1"))
		if err != nil {
			return false
		}
		defer conn.Close()
		text, err := io.ReadAll(conn)
		return err == nil && string(text) == "from the Pod"
	}
	wait := func(reason string, want bool) {
		t.Helper()
		testwait.For(t, reason, time.Minute, func() (bool, string) { return answers() == want, "not yet" })
	}

	if answers() {
		t.Error("the cluster listens at an address that it did not assign")
	}
	update(func(s *corev1.Service) { s.Status.LoadBalancer.Ingress[0].IP = "127.0.0.1" })
	wait("the load balancer with an address answers", true)
	if conn, err := net.Dial("tcp", at("127.0.0.2")); err == nil {
		_ = conn.Close()
		t.Error("the cluster listens outside of its range")
	}
	update(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	wait("nothing listens for a Service without a load balancer", false)
	update(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
	wait("the load balancer that came back answers", true)
	update(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports = []corev1.ServicePort{{Port: 9001, NodePort: int32(port)}}
		s.Status = corev1.ServiceStatus{}
	})
	wait("the node port answers", true)
	update(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 0 })
	wait("nothing listens for a Service without a node port", false)
	update(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = int32(port) })
	wait("the node port that came back answers", true)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if answers() {
		t.Error("the cluster still listens after its end")
	}
}

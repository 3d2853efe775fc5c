package network

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
)

var errSimulated = errors.New("nothing answers there: the Pod is simulated")

// nodePods is a node on which one Pod is simulated and all other Pods are real.
type nodePods struct{}

func (nodePods) HostAddress(ip string, port int) (string, error) {
	if ip == "198.18.0.9" {
		return "", errSimulated
	}
	return net.JoinHostPort("host-of-"+ip, strconv.Itoa(port)), nil
}

func service(name, clusterIP string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: clusterIP, ClusterIPs: []string{clusterIP}, Ports: ports},
	}
}

// slice returns an EndpointSlice. An address with a final ! is not ready. An address
// in the form NAME@IP belongs to a Pod with that host name.
func slice(service string, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("%s-%s-%d", service, strings.ToLower(string(family)), len(addresses)),
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: family, Ports: ports,
	}
	for _, address := range addresses {
		name, rest, named := strings.Cut(address, "@")
		if !named {
			rest = address
		}
		ip, notReady := strings.CutSuffix(rest, "!")
		ready := !notReady
		e := discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
		if named {
			e.Hostname = &name
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func slicePort(name string, number int32, protocol corev1.Protocol) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol}
}

func newServices(t *testing.T) *Services {
	t.Helper()
	const v4, v6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	anyReady := slice("unsaid", v4, []discoveryv1.EndpointPort{slicePort("", 80, tcp)}, "198.18.0.1")
	anyReady.Endpoints[0].Conditions.Ready = nil
	external := service("external", "")
	external.Spec.Type, external.Spec.ExternalName = corev1.ServiceTypeExternalName, "Example.com."
	kube := service("kubernetes", "10.96.0.1", corev1.ServicePort{Name: "https", Port: 443})
	kube.Namespace = "default"
	client := fake.NewClientset(
		service("web", "10.96.0.5", corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromString("web"), Protocol: tcp}),
		slice("web", v4, []discoveryv1.EndpointPort{slicePort("http", 9090, tcp)}, "198.18.0.2", "198.18.0.1", "198.18.0.3!"),
		slice("web", v6, []discoveryv1.EndpointPort{slicePort("http", 9090, tcp)}, "fd00::1"),
		service("dns", "10.96.0.6", corev1.ServicePort{Name: "udp", Port: 53, Protocol: udp}, corev1.ServicePort{Name: "tcp", Port: 53, Protocol: tcp}),
		slice("dns", v4, []discoveryv1.EndpointPort{slicePort("udp", 1053, udp), slicePort("tcp", 2053, tcp)}, "198.18.0.1"),
		service("starting", "10.96.0.7", corev1.ServicePort{Port: 80}),
		slice("starting", v4, []discoveryv1.EndpointPort{slicePort("", 80, tcp)}, "198.18.0.1!", "198.18.0.2!"),
		service("simulated", "10.96.0.8", corev1.ServicePort{Port: 443}),
		slice("simulated", v4, []discoveryv1.EndpointPort{slicePort("", 8443, tcp)}, "198.18.0.9"),
		service("headless", corev1.ClusterIPNone, corev1.ServicePort{Name: "db", Port: 5432, TargetPort: intstr.FromInt32(6000)}),
		slice("headless", v4, []discoveryv1.EndpointPort{slicePort("db", 6000, tcp)}, "db-0@198.18.0.1", "db-1@198.18.0.2"),
		service("unsaid", "10.96.0.10", corev1.ServicePort{Port: 80}), anyReady,
		service("empty", "10.96.0.11", corev1.ServicePort{Port: 80}),
		external, kube,
	)
	s, err := NewServices(t.Context(), client, nodePods{}, "127.0.0.1:6443")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestResolve(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	at := func(ip string, port int) Answer {
		return Answer{Address: "host-of-" + net.JoinHostPort(ip, strconv.Itoa(port))}
	}
	for _, tc := range []struct {
		reason, host string
		port         int
		want         Answer
		err          error
	}{
		{"the full name", "dns.ns.svc.cluster.local", 53, at("198.18.0.1", 2053), nil},
		{"the name that webhooks use", "dns.ns.svc", 53, at("198.18.0.1", 2053), nil},
		{"the name that search domains complete", "dns.ns", 53, at("198.18.0.1", 2053), nil},
		{"a cluster IP", "10.96.0.6", 53, at("198.18.0.1", 2053), nil},
		{"a cluster IP, in IPv6", "::ffff:10.96.0.6", 53, at("198.18.0.1", 2053), nil},
		{"a Pod IP", "198.19.255.1", 8080, at("198.19.255.1", 8080), nil},
		{"a Pod IP, in IPv6", "::ffff:198.18.0.1", 8080, at("198.18.0.1", 8080), nil},
		{"readiness that is not said is readiness", "unsaid.ns.svc", 80, at("198.18.0.1", 80), nil},
		{"a headless Service does not translate ports", "db-1.headless.ns.svc", 5432, at("198.18.0.2", 5432), nil},
		{"a headless Service leads to any port", "db-0.headless.ns.svc.cluster.local", 1, at("198.18.0.1", 1), nil},
		{"an ExternalName is another host", "external.ns.svc", 1, Answer{Alias: "Example.com."}, nil},
		{"the API server has no Pods", "kubernetes.default.svc", 443, Answer{Address: "127.0.0.1:6443"}, nil},
		{"the API server's cluster IP", "10.96.0.1", 443, Answer{Address: "127.0.0.1:6443"}, nil},
		{"the API server has one port", "kubernetes.default.svc", 80, Answer{}, ErrNoPort},
		{"a Service that is missing", "missing.ns.svc", 80, Answer{}, ErrNoService},
		{"a Service of another namespace", "web.other.svc", 80, Answer{}, ErrNoService},
		{"a cluster IP that is nobody's", "10.96.9.9", 80, Answer{}, ErrNoService},
		{"a port that is missing", "web.ns.svc", 9090, Answer{}, ErrNoPort},
		{"no Pod is ready", "starting.ns.svc", 80, Answer{}, ErrNoEndpoint},
		{"no Pod at all", "empty.ns.svc", 80, Answer{}, ErrNoEndpoint},
		{"no Pod of that name", "db-7.headless.ns.svc", 5432, Answer{}, ErrNoEndpoint},
		{"a simulated Pod", "simulated.ns.svc", 443, Answer{}, errSimulated},
		{"an outside host", "example.com", 443, Answer{}, nil},
		{"an outside host of three labels", "git.example.com", 443, Answer{}, nil},
		{"a short name that is no Service's", "missing.ns", 443, Answer{}, nil},
		{"a host without a dot", "web", 80, Answer{}, nil},
		{"too many labels", "a.b.c.d.svc", 80, Answer{}, nil},
		{"empty labels", ".ns.svc", 80, Answer{}, nil},
		{"an outside address", "192.0.2.1", 80, Answer{}, nil},
		{"an address beside the Pods'", "198.20.0.1", 80, Answer{}, nil},
		{"IPv6", "2001:db8::1", 80, Answer{}, nil},
	} {
		got, err := s.Resolve(t.Context(), tc.host, tc.port)
		if !errors.Is(err, tc.err) || (err != nil) != (tc.err != nil) {
			t.Errorf("%s: got the error %v, want %v", tc.reason, err, tc.err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
	if _, err := s.Resolve(t.Context(), "starting.ns.svc", 80); err == nil || !strings.Contains(err.Error(), "ns/starting (2 are not ready)") {
		t.Errorf("got %v, want the number of Pods that are not ready", err)
	}
}

// TestResolveInTurn checks that Resolve uses ready endpoints in turn, and never
// endpoints that are not ready or IPv6 endpoints.
func TestResolveInTurn(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	got := map[string]int{}
	for range 10 {
		answer, err := s.Resolve(t.Context(), "web.ns.svc", 80)
		if err != nil {
			t.Fatal(err)
		}
		got[answer.Address]++
	}
	if diff := cmp.Diff(map[string]int{"host-of-198.18.0.1:9090": 5, "host-of-198.18.0.2:9090": 5}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

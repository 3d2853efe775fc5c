package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
)

var (
	// ErrNoService says that a name has the form of a Service's and there is
	// none of that name.
	ErrNoService = errors.New("no such Service")
	// ErrNoPort says that the Service does not have the port.
	ErrNoPort = errors.New("the Service has no such port")
	// ErrNoEndpoint says that no Pod behind the Service is ready.
	ErrNoEndpoint = errors.New("no Pod behind the Service is ready")
)

// Pods answers at which loopback address a Pod's container port is served.
type Pods interface {
	HostAddress(podIP string, port int) (string, error)
}

// Services resolves the addresses of a cluster as Kubernetes does, from its
// Services and EndpointSlices; the last step, from a Pod to a port of this
// machine, is the node's. It implements [Resolver].
type Services struct {
	pods     Pods
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
	pick     atomic.Uint32
}

var (
	serviceCIDR = netip.MustParsePrefix("10.96.0.0/16")
	podCIDR     = netip.MustParsePrefix("198.18.0.0/15")
)

// NewServices watches the cluster's Services until the context ends. It returns
// when it knows those that are there.
func NewServices(ctx context.Context, client kubernetes.Interface, pods Pods) (*Services, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	s := &Services{
		pods:     pods,
		services: factory.Core().V1().Services().Lister(),
		slices:   factory.Discovery().V1().EndpointSlices().Lister(),
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("cannot watch %v: %w", kind, context.Cause(ctx))
		}
	}
	return s, nil
}

// Resolve implements [Resolver].
func (s *Services) Resolve(_ context.Context, host string, port int) (string, bool, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		switch {
		case podCIDR.Contains(ip):
			address, err := s.pods.HostAddress(host, port)
			return address, true, err
		case serviceCIDR.Contains(ip):
			address, err := s.byIP(host, port)
			return address, true, err
		}
		return "", false, nil
	}
	name, namespace, ok := serviceName(host)
	if !ok {
		return "", false, nil
	}
	service, err := s.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return "", true, fmt.Errorf("%w: %s/%s", ErrNoService, namespace, name)
	}
	if err != nil {
		return "", true, err
	}
	address, err := s.endpoint(service, port)
	return address, true, err
}

// serviceName splits NAME.NAMESPACE.svc and NAME.NAMESPACE.svc.cluster.local.
func serviceName(host string) (name, namespace string, ok bool) {
	rest, found := strings.CutSuffix(strings.TrimSuffix(host, ".cluster.local"), ".svc")
	if !found {
		return "", "", false
	}
	name, namespace, ok = strings.Cut(rest, ".")
	return name, namespace, ok && name != "" && namespace != "" && !strings.Contains(namespace, ".")
}

func (s *Services) byIP(ip string, port int) (string, error) {
	all, err := s.services.List(labels.Everything())
	if err != nil {
		return "", err
	}
	for _, service := range all {
		if slices.Contains(service.Spec.ClusterIPs, ip) {
			return s.endpoint(service, port)
		}
	}
	return "", fmt.Errorf("%w: none has the cluster IP %s", ErrNoService, ip)
}

// endpoint picks a ready endpoint behind a Service's port, each in turn.
func (s *Services) endpoint(service *corev1.Service, port int) (string, error) {
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return int(p.Port) == port })
	if i < 0 {
		// A headless Service leads to its Pods' own ports.
		if service.Spec.ClusterIP != corev1.ClusterIPNone {
			return "", fmt.Errorf("%w: %s/%s, port %d", ErrNoPort, service.Namespace, service.Name, port)
		}
	}
	endpointSlices, err := s.slices.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: service.Name,
	}))
	if err != nil {
		return "", err
	}
	type target struct {
		ip   string
		port int
	}
	var ready []target
	for _, slice := range endpointSlices {
		number := port
		if i >= 0 {
			if number = portOf(slice, service.Spec.Ports[i].Name); number == 0 {
				continue
			}
		}
		for _, e := range slice.Endpoints {
			if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				ready = append(ready, target{e.Addresses[0], number})
			}
		}
	}
	if len(ready) == 0 {
		return "", fmt.Errorf("%w: %s/%s", ErrNoEndpoint, service.Namespace, service.Name)
	}
	t := ready[int(s.pick.Add(1))%len(ready)]
	address, err := s.pods.HostAddress(t.ip, t.port)
	if err != nil {
		return "", fmt.Errorf("cannot reach the Pod %s behind Service %s/%s: %w", net.JoinHostPort(t.ip, strconv.Itoa(t.port)), service.Namespace, service.Name, err)
	}
	return address, nil
}

func portOf(slice *discoveryv1.EndpointSlice, name string) int {
	for _, p := range slice.Ports {
		if p.Port != nil && (p.Name == nil && name == "" || p.Name != nil && *p.Name == name) {
			return int(*p.Port)
		}
	}
	return 0
}

package network

import (
	"cmp"
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
	"k8s.io/client-go/tools/cache"
)

var (
	// ErrNoService reports that a name has the form of a Service's name, but no such
	// Service exists.
	ErrNoService = errors.New("no such Service")
	// ErrNoPort reports that the Service does not have the port.
	ErrNoPort = errors.New("the Service has no such port")
	// ErrNoEndpoint reports that no Pod behind the Service is ready.
	ErrNoEndpoint = errors.New("no Pod behind the Service is ready")
)

// Pods returns the loopback address that serves a Pod's container port.
type Pods interface {
	HostAddress(podIP string, port int) (string, error)
}

// Services resolves the addresses of a cluster as Kubernetes does, from its Services
// and EndpointSlices. The node resolves the last step, from a Pod to a port of this
// machine. Services implements [Resolver]. The cluster has IPv4 alone.
type Services struct {
	pods      Pods
	apiServer string
	informer  cache.SharedIndexInformer // of Services
	services  corelisters.ServiceLister
	slices    discoverylisters.EndpointSliceLister
	pick      atomic.Uint32
}

var (
	serviceCIDR = netip.MustParsePrefix("10.96.0.0/16")
	podCIDR     = netip.MustParsePrefix("198.18.0.0/15")
)

// NewServices watches the cluster's Services until the context ends. It returns when its caches
// are synced, or an error if the context ends before. apiServer is the API server's host:port on
// this machine. The Service default/kubernetes, which has no Pods, leads to this address.
func NewServices(ctx context.Context, client kubernetes.Interface, pods Pods, apiServer string) (*Services, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	s := &Services{
		pods:      pods,
		apiServer: apiServer,
		informer:  factory.Core().V1().Services().Informer(),
		services:  factory.Core().V1().Services().Lister(),
		slices:    factory.Discovery().V1().EndpointSlices().Lister(),
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("cannot watch %v: %w", kind, context.Cause(ctx))
		}
	}
	return s, nil
}

// Resolve implements [Resolver] for Pod IPs, cluster IPs and the names in the
// cluster's DNS (the DNS specification of Kubernetes, 2.3 and 2.4):
// NAME.NAMESPACE.svc[.cluster.local], POD.NAME.NAMESPACE.svc[.cluster.local] of a
// headless Service, and NAME.NAMESPACE, which Pods find through their search
// domains, if such a Service exists.
func (s *Services) Resolve(_ context.Context, host string, port int) (Answer, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		switch {
		case podCIDR.Contains(ip):
			return located(s.pods.HostAddress(ip.String(), port))
		case serviceCIDR.Contains(ip):
			return s.byIP(ip.String(), port)
		}
		return Answer{}, nil
	}
	name, ok := parseServiceName(host)
	if !ok {
		return Answer{}, nil
	}
	service, err := s.services.Services(name.namespace).Get(name.service)
	switch {
	case apierrors.IsNotFound(err) && name.short:
		return Answer{}, nil
	case apierrors.IsNotFound(err):
		return Answer{}, fmt.Errorf("%w: %s/%s", ErrNoService, name.namespace, name.service)
	case err != nil:
		return Answer{}, err
	}
	return s.service(service, name.pod, port)
}

func located(address string, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	return Answer{Address: address}, nil
}

// serviceName is a name in the cluster's DNS.
type serviceName struct {
	// pod is the host name of a Pod, or empty.
	pod, service, namespace string
	// short is true for NAME.NAMESPACE, which can also be the name of an outside
	// host.
	short bool
}

func parseServiceName(host string) (serviceName, bool) {
	rest, full := strings.CutSuffix(strings.TrimSuffix(host, ".cluster.local"), ".svc")
	labels := strings.Split(rest, ".")
	switch {
	case slices.Contains(labels, ""):
		return serviceName{}, false
	case len(labels) == 2:
		return serviceName{service: labels[0], namespace: labels[1], short: !full}, true
	case len(labels) == 3 && full:
		return serviceName{pod: labels[0], service: labels[1], namespace: labels[2]}, true
	}
	return serviceName{}, false
}

func (s *Services) byIP(ip string, port int) (Answer, error) {
	all, err := s.services.List(labels.Everything())
	if err != nil {
		return Answer{}, err
	}
	for _, service := range all {
		if slices.Contains(service.Spec.ClusterIPs, ip) {
			return s.service(service, "", port)
		}
	}
	return Answer{}, fmt.Errorf("%w: none has the cluster IP %s", ErrNoService, ip)
}

// service returns the destination of a Service.
func (s *Services) service(service *corev1.Service, pod string, port int) (Answer, error) {
	name := service.Namespace + "/" + service.Name
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return Answer{Alias: service.Spec.ExternalName}, nil
	}
	var named *corev1.ServicePort
	// A headless Service leads to its Pods' own ports: it translates no ports.
	if headless := service.Spec.ClusterIP == corev1.ClusterIPNone; !headless {
		i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
			return int(p.Port) == port && isTCP(p.Protocol)
		})
		if i < 0 {
			return Answer{}, fmt.Errorf("%w: %s, port %d", ErrNoPort, name, port)
		}
		named = &service.Spec.Ports[i]
	}
	if name == "default/kubernetes" {
		return Answer{Address: s.apiServer}, nil
	}
	ready, others, err := s.endpoints(service, named, pod, port)
	if err != nil {
		return Answer{}, err
	}
	if len(ready) == 0 {
		return Answer{}, fmt.Errorf("%w: %s (%d are not ready)", ErrNoEndpoint, name, others)
	}
	to := ready[int(s.pick.Add(1)%uint32(len(ready)))]
	answer, err := located(s.pods.HostAddress(to.ip, to.port))
	if err != nil {
		return Answer{}, fmt.Errorf("the Pod %s behind the Service %s: %w", net.JoinHostPort(to.ip, strconv.Itoa(to.port)), name, err)
	}
	return answer, nil
}

type endpoint struct {
	ip   string
	port int
}

// endpoints returns the ready endpoints of a Service in the order of their
// addresses, and the number of other endpoints. If the Service publishes addresses
// that are not ready, its EndpointSlices mark them as ready. Without a named port,
// endpoints uses the given port of the Pods.
func (s *Services) endpoints(service *corev1.Service, named *corev1.ServicePort, pod string, port int) (ready []endpoint, others int, err error) {
	all, err := s.slices.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: service.Name,
	}))
	if err != nil {
		return nil, 0, err
	}
	for _, slice := range all {
		if slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		if named != nil {
			if port = portOf(slice, named.Name); port == 0 {
				continue
			}
		}
		for _, e := range slice.Endpoints {
			switch {
			case len(e.Addresses) == 0, pod != "" && (e.Hostname == nil || *e.Hostname != pod):
			case e.Conditions.Ready == nil || *e.Conditions.Ready:
				ready = append(ready, endpoint{e.Addresses[0], port})
			default:
				others++
			}
		}
	}
	slices.SortFunc(ready, func(a, b endpoint) int {
		return cmp.Or(strings.Compare(a.ip, b.ip), cmp.Compare(a.port, b.port))
	})
	return ready, others, nil
}

// portOf returns the number of a Service's port on the Pods of a slice: the
// targetPort, with names resolved.
func portOf(slice *discoveryv1.EndpointSlice, name string) int {
	for _, p := range slice.Ports {
		tcp := p.Protocol == nil || isTCP(*p.Protocol)
		if p.Port != nil && tcp && (p.Name == nil && name == "" || p.Name != nil && *p.Name == name) {
			return int(*p.Port)
		}
	}
	return 0
}

func isTCP(p corev1.Protocol) bool { return p == "" || p == corev1.ProtocolTCP }

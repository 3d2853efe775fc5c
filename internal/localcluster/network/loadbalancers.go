package network

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// maxBalanced is the maximum number of ports at which one cluster listens for load balancers. A
// fleet under review decides how many Services it has.
const maxBalanced = 64

// LoadBalancerRange returns the range of loopback addresses for the load balancers of a cluster,
// which no other running cluster has: it follows from the port of the API server. The range is
// invalid on systems other than Linux, whose loopback has one address.
func LoadBalancerRange(apiServer string) netip.Prefix {
	server, err := netip.ParseAddrPort(apiServer)
	if err != nil || runtime.GOOS != "linux" {
		return netip.Prefix{}
	}
	// Ports below 1024 need privileges, so no range begins with 127.0.
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(server.Port() >> 8), byte(server.Port()), 0}), 24)
}

// NodeAddress returns the address of a range at which the node ports of Services are, and "" for an
// invalid range. No load balancer has it.
func NodeAddress(pool netip.Prefix) string {
	if !pool.IsValid() {
		return ""
	}
	return pool.Addr().String()
}

// balanced is a port of a Service that has a load balancer or a node port.
type balanced struct {
	host string // the Service's name in the cluster's DNS
	port int
}

// ServeLoadBalancers listens at the addresses of a range that Services of type LoadBalancer have, and
// at the ports of [NodeAddress] that Services of type NodePort have. It passes connections on to the
// Pods behind them, until the context ends. An invalid range has no addresses. ServeLoadBalancers logs an address at which it cannot listen, such as one with a
// port that needs privileges, and tries it again when a Service changes. It returns an error if it
// cannot watch the Services.
func (s *Services) ServeLoadBalancers(ctx context.Context, pool netip.Prefix, log *slog.Logger) error {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	registration, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal() },
		UpdateFunc: func(_, _ any) { signal() },
		DeleteFunc: func(any) { signal() },
	})
	if err != nil {
		return fmt.Errorf("cannot watch the load balancers: %w", err)
	}
	defer func() { _ = s.informer.RemoveEventHandler(registration) }()
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	type listening struct {
		net.Listener

		to balanced
	}
	open := map[string]listening{}
	failed := map[string]bool{}
	defer func() {
		cancel()
		for _, listener := range open {
			_ = listener.Close()
		}
		serving.Wait()
	}()
	for {
		wanted, err := s.balanced(pool)
		if err != nil {
			return fmt.Errorf("cannot read the load balancers: %w", err)
		}
		for address, listener := range open {
			if to, ok := wanted[address]; !ok || to != listener.to {
				_ = listener.Close()
				delete(open, address)
			}
		}
		for address, to := range wanted {
			if _, ok := open[address]; ok {
				continue
			}
			listener, err := net.Listen("tcp", address)
			if err != nil {
				if !failed[address] {
					log.Warn("cannot listen for a load balancer", "address", address, "service", to.host, "error", err)
				}
				failed[address] = true
				continue
			}
			open[address] = listening{listener, to}
			serving.Go(func() { s.balance(ctx, listener, to, log) })
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// balanced returns the addresses of the range, as host:port, at which load balancers and node ports
// listen.
func (s *Services) balanced(pool netip.Prefix) (map[string]balanced, error) {
	all, err := s.services.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	addresses := map[string]balanced{}
	for _, service := range all {
		for _, port := range service.Spec.Ports {
			for _, address := range addressesOf(service, port, pool) {
				if len(addresses) < maxBalanced {
					addresses[address] = balanced{service.Name + "." + service.Namespace + ".svc", int(port.Port)}
				}
			}
		}
	}
	return addresses, nil
}

// addressesOf returns the addresses of the range, as host:port, that a port of a Service has. It leaves
// out other addresses: any user with the right to write the status can set them.
func addressesOf(service *corev1.Service, port corev1.ServicePort, pool netip.Prefix) []string {
	if !pool.IsValid() || !isTCP(port.Protocol) {
		return nil
	}
	var all []string
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		if port.NodePort > 0 {
			all = append(all, net.JoinHostPort(NodeAddress(pool), strconv.Itoa(int(port.NodePort))))
		}
	case corev1.ServiceTypeLoadBalancer:
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			if ip, err := netip.ParseAddr(ingress.IP); err == nil && pool.Contains(ip) {
				all = append(all, net.JoinHostPort(ingress.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	return all
}

// balance passes the connections of a listener on, until it is closed.
func (s *Services) balance(ctx context.Context, listener net.Listener, to balanced, log *slog.Logger) {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		here, err := listener.Accept()
		if err != nil {
			return
		}
		connections.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = here.Close() })
			defer stop()
			defer here.Close()
			answer, err := s.Resolve(ctx, to.host, to.port)
			if err != nil {
				log.Warn("cannot reach the Pods of a load balancer", "service", to.host, "port", to.port, "error", err)
				return
			}
			there, err := (&net.Dialer{}).DialContext(ctx, "tcp", answer.Address)
			if err != nil {
				log.Warn("cannot reach the Pods of a load balancer", "service", to.host, "port", to.port, "error", err)
				return
			}
			tunnel(here, there)
		})
	}
}

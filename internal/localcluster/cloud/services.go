package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// testNet is TEST-NET-3 of RFC 5737, which is not routed on the Internet.
var testNet = netip.MustParsePrefix("203.0.113.0/24")

var errNoAddress = errors.New("all 254 addresses of the local cluster's load balancers are taken")

// adopt records the addresses that Services have from an earlier run.
func (c *cloud) adopt() error {
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("cannot list Services: %w", err)
	}
	for _, s := range services {
		if ip := c.address(s); ip != "" && ours(s) {
			c.addresses[ip] = cache.MetaObjectToName(s).String()
		}
	}
	return nil
}

// ours reports whether the cloud serves the Service's load balancer. A Service with
// a class belongs to the controller of that class.
func ours(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
}

// address returns the address that the cloud has assigned to the Service, or "".
func (c *cloud) address(s *corev1.Service) string {
	for _, in := range s.Status.LoadBalancer.Ingress {
		if ip, err := netip.ParseAddr(in.IP); err == nil && c.pool.Contains(ip) {
			return in.IP
		}
	}
	return ""
}

// serveService assigns an address to a Service, or takes it back.
func (c *cloud) serveService(ctx context.Context, namespace, name string) error {
	key := cache.ObjectName{Namespace: namespace, Name: name}.String()
	service, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.release(key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the Service: %w", err)
	}
	has := c.address(service)
	if !ours(service) {
		c.release(key)
		if has != "" && service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			return c.setStatus(ctx, service, "")
		}
		return nil
	}
	ip, err := c.allocate(key, has, service.Spec.LoadBalancerIP)
	if err != nil {
		return err
	}
	if ip == has {
		return nil
	}
	return c.setStatus(ctx, service, ip)
}

// allocate returns the address of a Service: the address it holds, else a free
// wanted address, else the first free address.
func (c *cloud) allocate(key string, wanted ...string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ip, holder := range c.addresses {
		if holder == key {
			return ip, nil
		}
	}
	for ip := c.pool.Addr().Next(); c.pool.Contains(ip.Next()); ip = ip.Next() {
		wanted = append(wanted, ip.String())
	}
	free := slices.IndexFunc(wanted, func(s string) bool {
		ip, err := netip.ParseAddr(s)
		return err == nil && c.pool.Contains(ip) && c.addresses[s] == ""
	})
	if free < 0 {
		return "", errNoAddress
	}
	c.addresses[wanted[free]] = key
	return wanted[free], nil
}

func (c *cloud) release(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ip, holder := range c.addresses {
		if holder == key {
			delete(c.addresses, ip)
		}
	}
}

// setStatus writes the address; an empty one clears it.
func (c *cloud) setStatus(ctx context.Context, service *corev1.Service, ip string) error {
	var ingress []corev1.LoadBalancerIngress
	if ip != "" {
		mode := corev1.LoadBalancerIPModeVIP
		ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: &mode}}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": service.UID},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	})
	if err != nil {
		return fmt.Errorf("cannot encode the status: %w", err)
	}
	_, err = c.client.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot write the address: %w", err)
	}
	return nil
}

package network

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Answer is the destination of an address of the cluster. At most one field is set.
// If none is set, the host is no address of the cluster.
type Answer struct {
	// Address is the address on this machine that serves the host, as host:port.
	Address string
	// Alias is the host that an ExternalName stands for. The rules for that host
	// apply.
	Alias string
}

// Resolver finds the local address for an address of the cluster.
type Resolver interface {
	// Resolve resolves a host, which is a lower case name without a final dot or an
	// IP address. The error says why no destination serves an address of the
	// cluster.
	Resolve(ctx context.Context, host string, port int) (Answer, error)
}

// destination is the destination of a connection: a mapped host, an address of the
// cluster on this machine or, if neither is set, an outside host.
type destination struct {
	// name and port are the name and the port of the host, after aliases.
	name string
	port int
	// mapped is the mapped host, which is served here.
	mapped *host
	// cluster is the address on this machine, as host:port.
	cluster string
}

// address returns the destination's name and port, as host:port.
func (d destination) address() string { return net.JoinHostPort(d.name, strconv.Itoa(d.port)) }

// maxAliases limits the length of a chain of ExternalNames.
const maxAliases = 4

// route returns the destination of a host, by the rules in the package comment.
func (n *Network) route(ctx context.Context, hostname string, port int) (destination, error) {
	d := destination{name: cleanHost(hostname), port: port}
	for range maxAliases {
		n.mu.RLock()
		resolver := n.resolver
		d.mapped = n.hosts[d.name]
		n.mu.RUnlock()
		if d.mapped != nil || resolver == nil {
			break
		}
		answer, err := resolver.Resolve(ctx, d.name, port)
		if err != nil {
			return d, fmt.Errorf("cannot reach %s: %w", d.address(), err)
		}
		d.cluster = answer.Address
		if answer.Alias == "" {
			break
		}
		d.name = cleanHost(answer.Alias)
	}
	if d.mapped != nil || d.cluster != "" {
		return d, nil
	}
	if err := checkName(d.name); err != nil {
		return d, err
	}
	if !n.cfg.Online {
		return d, &NotMappedError{Host: d.name}
	}
	return d, nil
}

// dial connects to a destination that is not served here.
func (n *Network) dial(ctx context.Context, d destination) (net.Conn, error) {
	if d.cluster != "" {
		return (&net.Dialer{}).DialContext(ctx, "tcp", d.cluster)
	}
	return n.cfg.dialOutside(ctx, "tcp", d.address())
}

// cleanHost returns a host name in comparable form: lower case, without a final dot.
func cleanHost(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

func hostOnly(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return strings.Trim(hostport, "[]")
}

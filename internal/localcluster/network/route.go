package network

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Answer is where an address of the cluster leads. Of its fields one is set; if
// none is, the host is no address of the cluster.
type Answer struct {
	// Address is where it is served on this machine, as host:port.
	Address string
	// Alias is another host that it stands for (an ExternalName). The rules
	// for that host apply.
	Alias string
}

// Resolver answers where an address of the cluster is served.
type Resolver interface {
	// Resolve finds a host, a lower case name without a final dot or an IP
	// address. The error says why an address of the cluster leads nowhere.
	Resolve(ctx context.Context, host string, port int) (Answer, error)
}

// destination is where a connection leads: to a mapped host, to an address of
// this machine where the cluster is, or, if both are not set, outside.
type destination struct {
	// name and port are those of the host, after aliases.
	name string
	port int
	// mapped is the host that is served here.
	mapped *host
	// cluster is host:port on this machine.
	cluster string
}

// address is the destination's name and port.
func (d destination) address() string { return net.JoinHostPort(d.name, strconv.Itoa(d.port)) }

// maxAliases bounds how many ExternalNames may lead to each other.
const maxAliases = 4

// route finds out where a host leads, by the rules of the package's comment.
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

// cleanHost makes host names comparable: lower case, without a final dot.
func cleanHost(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

func hostOnly(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return strings.Trim(hostport, "[]")
}

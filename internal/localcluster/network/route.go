package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNotMapped says that a host of the outside world has no place here.
var ErrNotMapped = errors.New("not mapped")

// NotMappedError names the host that was asked for and the way out.
type NotMappedError struct {
	// Host is the host as it was asked for, without a port.
	Host string
}

func (e *NotMappedError) Error() string {
	return fmt.Sprintf("%s is not mapped (there is no network here: add --map https://%s/...=DIR, or --online)", e.Host, e.Host)
}

// Is makes errors.Is(err, ErrNotMapped) true.
func (e *NotMappedError) Is(target error) bool { return target == ErrNotMapped }

// ErrForbidden says that an address belongs to this machine or its link.
var ErrForbidden = errors.New("addresses of this machine cannot be reached from the local cluster")

// Refusal is a host that was asked for in vain.
type Refusal struct {
	// Address is host:port.
	Address string
	// Count is how often it was asked for.
	Count int
	// First is when it was asked for first.
	First time.Time
	// Err is the reason that was given last.
	Err error
}

// Refused returns the hosts that were asked for and are not mapped, in the
// order in which they were asked for first.
func (n *Network) Refused() []Refusal {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var all []Refusal
	for _, r := range n.refused {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Refusal) int { return a.First.Compare(b.First) })
	return all
}

// maxRefusals bounds what a process can make us remember.
const maxRefusals = 1000

func (n *Network) refuse(address string, err error) {
	n.cfg.Log.Warn("refused", "address", address, "reason", err)
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.refused[address]
	if r == nil {
		if len(n.refused) >= maxRefusals {
			return
		}
		r = &Refusal{Address: address, First: time.Now()}
		n.refused[address] = r
	}
	r.Count, r.Err = r.Count+1, err
}

// host is a mapped host: handlers by path prefix, and one for SSH.
type host struct {
	handlers map[string]http.Handler
	ssh      func(net.Conn, string)
}

func (n *Network) mapped(name string) *host {
	h := n.hosts[name]
	if h == nil {
		h = &host{handlers: map[string]http.Handler{}}
		n.hosts[name] = h
	}
	return h
}

// Handle serves an outside host's paths that begin with prefix, over HTTP and
// HTTPS and on every port. Of several prefixes that fit, the longest counts.
func (n *Network) Handle(hostname, prefix string, handler http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mapped(cleanHost(hostname)).handlers[strings.TrimSuffix(prefix, "/")] = handler
}

// HandleSSH serves SSH connections to an outside host.
func (n *Network) HandleSSH(hostname string, serve func(conn net.Conn, host string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mapped(cleanHost(hostname)).ssh = serve
}

// serveMapped serves a request that was made to a mapped host.
func (n *Network) serveMapped(w http.ResponseWriter, r *http.Request) {
	name := cleanHost(hostOnly(r.Host))
	n.mu.RLock()
	var found http.Handler
	longest := -1
	if h := n.hosts[name]; h != nil {
		for prefix, handler := range h.handlers {
			inside := r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/")
			if inside && len(prefix) > longest {
				found, longest = handler, len(prefix)
			}
		}
	}
	n.mu.RUnlock()
	if found == nil {
		path := strings.TrimSuffix(r.URL.Path, "/info/refs")
		n.refuse(r.Host+path, ErrNotMapped)
		http.Error(w, fmt.Sprintf("%s%s is not mapped (add --map https://%s%s=DIR)", name, path, name, path), http.StatusNotFound)
		return
	}
	found.ServeHTTP(w, r)
}

// dial connects to where a host leads.
func (n *Network) dial(ctx context.Context, hostname string, port int) (net.Conn, error) {
	name := cleanHost(hostname)
	n.mu.RLock()
	h, resolver := n.hosts[name], n.resolver
	n.mu.RUnlock()
	if h != nil {
		return n.dialMapped(h, name, port), nil
	}
	if resolver != nil {
		address, ok, err := resolver.Resolve(ctx, name, port)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, port, err)
		}
		if ok {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	if !n.cfg.Online {
		return nil, &NotMappedError{Host: name}
	}
	return dialOutside(ctx, name, port)
}

// dialOutside connects to the real network, except to addresses of this machine
// and its link. The check is made on the address that is dialled, so that no
// spelling and no name gets around it.
func dialOutside(ctx context.Context, name string, port int) (net.Conn, error) {
	dialer := &net.Dialer{
		Timeout: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscallConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %s", ErrForbidden, address)
			}
			if ip := ap.Addr().Unmap(); !ip.IsGlobalUnicast() || isOwn(ip) {
				return fmt.Errorf("%w: %s", ErrForbidden, address)
			}
			return nil
		},
	}
	return dialer.DialContext(ctx, "tcp", net.JoinHostPort(name, strconv.Itoa(port)))
}

// isOwn says whether an address is one of this machine's interfaces.
func isOwn(ip netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip
	})
}

// dialMapped connects to the server of a mapped host. Which protocol is spoken
// shows in the first byte that the client sends, for all three send first;
// port 22 is SSH in any case.
func (n *Network) dialMapped(h *host, name string, port int) net.Conn {
	client, server := net.Pipe()
	go func() {
		if port == 22 {
			n.serveSSH(h, name, server)
			return
		}
		conn, first, err := peek(server)
		switch {
		case err != nil:
			_ = server.Close()
		case first == 'S' && h.ssh != nil:
			n.serveSSH(h, name, conn)
		case first == tlsHandshake:
			n.secure.push(&namedConn{Conn: conn, name: name})
		default:
			n.plain.push(conn)
		}
	}()
	return client
}

// tlsHandshake is the first byte of a TLS connection (RFC 8446, 5.1).
const tlsHandshake = 0x16

func (n *Network) serveSSH(h *host, name string, conn net.Conn) {
	defer conn.Close()
	if h.ssh == nil {
		n.refuse(name+":22", ErrNotMapped)
		return
	}
	h.ssh(conn, name)
}

// cleanHost makes host names comparable: lower case, without a final dot.
func cleanHost(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

func hostOnly(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return strings.Trim(hostport, "[]")
}

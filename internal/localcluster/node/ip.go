package node

import (
	"errors"
	"net/netip"
)

// podNetwork is the range of Pod addresses: RFC 2544's range for benchmarks, which
// no host on the Internet uses and which the API server accepts in EndpointSlices.
var podNetwork = netip.MustParsePrefix("198.18.0.0/15")

var errNoAddress = errors.New("all Pod addresses are taken")

// addresses allocates Pod addresses, each to one Pod. It reuses a released address
// as late as possible.
type addresses struct {
	next  netip.Addr
	taken map[netip.Addr]bool
}

func newAddresses() *addresses {
	return &addresses{next: podNetwork.Addr().Next(), taken: map[netip.Addr]bool{}}
}

// take returns a free address: the wanted address if it is free and in podNetwork.
func (a *addresses) take(wanted string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(wanted); err == nil && podNetwork.Contains(ip) && !a.taken[ip] {
		a.taken[ip] = true
		return ip, nil
	}
	for range 1 << (32 - podNetwork.Bits()) {
		ip := a.next
		a.next = ip.Next()
		if !podNetwork.Contains(a.next) {
			a.next = podNetwork.Addr().Next()
		}
		if !a.taken[ip] {
			a.taken[ip] = true
			return ip, nil
		}
	}
	return netip.Addr{}, errNoAddress
}

func (a *addresses) release(ip netip.Addr) { delete(a.taken, ip) }

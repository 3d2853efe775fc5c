package node

import (
	"errors"
	"net/netip"
)

// podNetwork is where Pods have their addresses: RFC 2544's range for
// benchmarks, which no host on the internet has and which the API server
// accepts in EndpointSlices.
var podNetwork = netip.MustParsePrefix("198.18.0.0/15")

var errNoAddress = errors.New("all Pod addresses are taken")

// addresses hands out Pod addresses, each to one holder. An address that is
// given back is used again as late as possible.
type addresses struct {
	next  netip.Addr
	taken map[netip.Addr]bool
}

func newAddresses() *addresses {
	return &addresses{next: podNetwork.Addr().Next(), taken: map[netip.Addr]bool{}}
}

// take returns a free address: the wanted one if it is ours and free.
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

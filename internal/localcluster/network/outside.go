package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// metadataAddresses are the addresses of the metadata services of AWS (IPv6),
// Alibaba, Azure and Oracle, from which a machine gets its credentials. Link-local
// addresses of such services are not in the list.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("192.0.0.192"),
}

// checkOutside returns an error for an address of this machine, its link or a
// metadata service.
func checkOutside(ip netip.Addr) error {
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() || slices.Contains(metadataAddresses, ip) || isOwn(ip) {
		return fmt.Errorf("%w: %s", ErrForbidden, ip)
	}
	return nil
}

// checkName returns an error for names and addresses that obviously belong to this
// machine. dialOutside detects every other spelling.
func checkName(name string) error {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return fmt.Errorf("%w: %s", ErrForbidden, name)
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return checkOutside(ip)
	}
	return nil
}

// outsidePatience limits the wait for a connection to the real network.
const outsidePatience = 30 * time.Second

// dialOutside connects to the real network, except to addresses of this machine and
// its link. It checks the address that it dials, so that no spelling and no name can
// avoid the check.
func dialOutside(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{
		Timeout: outsidePatience,
		ControlContext: func(_ context.Context, _, dialled string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(dialled)
			if err != nil {
				return fmt.Errorf("%w: %s", ErrForbidden, dialled)
			}
			return checkOutside(ap.Addr())
		},
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if errors.Is(err, ErrForbidden) {
		return nil, fmt.Errorf("%w: %s", ErrForbidden, address)
	}
	return conn, err
}

// isOwn reports whether an address belongs to an interface of this machine.
func isOwn(ip netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip.WithZone("")
	})
}

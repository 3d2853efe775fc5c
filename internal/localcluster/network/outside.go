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

// metadataAddresses are where clouds tell a machine its credentials, as far as
// they are not link-local: of AWS (IPv6), Alibaba, Azure and Oracle.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("192.0.0.192"),
}

// checkOutside refuses the addresses of this machine and its link.
func checkOutside(ip netip.Addr) error {
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() || slices.Contains(metadataAddresses, ip) || isOwn(ip) {
		return fmt.Errorf("%w: %s", ErrForbidden, ip)
	}
	return nil
}

// checkName refuses what names this machine on the face of it. Every other
// spelling is found out when it is dialled.
func checkName(name string) error {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return fmt.Errorf("%w: %s", ErrForbidden, name)
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return checkOutside(ip)
	}
	return nil
}

// outsidePatience bounds how long the real network may take to answer.
const outsidePatience = 30 * time.Second

// dialOutside connects to the real network, except to addresses of this machine
// and its link. The check is made on the address that is dialled, so that no
// spelling and no name gets around it.
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

// isOwn says whether an address is one of this machine's interfaces.
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

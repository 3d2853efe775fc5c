package lockdown

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// PrivateRanges are the ranges of the Pods, Services and nodes of nearly every cluster: RFC
// 1918, RFC 6598, RFC 4193, the link-local addresses, where clouds serve the identity of a
// machine, and RFC 2544, which the local cluster uses.
var PrivateRanges = []string{"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "fc00::/7", "fe80::/10"}

// ranges are the addresses that a policy excludes, by family.
type ranges struct{ IPv4, IPv6 []string }

// APIServer returns the ranges that may include the API server: all but the link-local
// ones.
func (r ranges) APIServer() []string {
	return slices.DeleteFunc(slices.Concat(r.IPv4, r.IPv6), func(cidr string) bool {
		return netip.MustParsePrefix(cidr).Addr().IsLinkLocalUnicast()
	})
}

// blockedRanges returns the wanted ranges, or if they are nil the ranges of before. If there are none, it returns
// [PrivateRanges]. It always adds the link-local ranges.
func blockedRanges(wanted, before []string) (ranges, error) {
	all := slices.Clone(wanted)
	if wanted == nil {
		all = slices.Clone(before)
	}
	if len(all) == 0 {
		all = slices.Clone(PrivateRanges)
	}
	var r ranges
	for _, cidr := range append(all, "169.254.0.0/16", "fe80::/10") {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || prefix.Masked() != prefix || prefix.Bits() == 0 {
			return ranges{}, fmt.Errorf("cannot use the cluster range %q: write a range of addresses such as 10.96.0.0/12 (--cluster-range)", cidr)
		}
		if prefix.Addr().Is4() {
			r.IPv4 = append(r.IPv4, cidr)
		} else {
			r.IPv6 = append(r.IPv6, cidr)
		}
	}
	for _, family := range []*[]string{&r.IPv4, &r.IPv6} {
		slices.Sort(*family)
		*family = slices.Compact(*family)
	}
	if len(r.APIServer()) == 0 {
		return ranges{}, fmt.Errorf("cannot use only link-local addresses as the cluster's ranges: name the ranges of Pods and Services (--cluster-range)")
	}
	return r, nil
}

// rememberedRanges returns the ranges that the policies in the fleet exclude now.
func (t *tree) rememberedRanges() []string {
	var all []string
	for document := range strings.SplitSeq(t.before[t.component("network.yaml")], "\n---\n") {
		var p networkingv1.NetworkPolicy
		// A document that does not parse has no ranges; the lockdown writes it again.
		if yaml.Unmarshal([]byte(document), &p) != nil {
			continue
		}
		for _, rule := range p.Spec.Egress {
			for _, to := range rule.To {
				if to.IPBlock != nil {
					all = append(all, to.IPBlock.Except...)
				}
			}
		}
	}
	return all
}

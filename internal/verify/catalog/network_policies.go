package catalog

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// reach is the result of a check whether Pods of another namespace can connect to a Pod.
type reach int

// The values of reach, the least dangerous first.
const (
	closed  reach = iota // a policy selects the Pod, and no policy lets them in
	unclear              // a policy lets in addresses that may be theirs
	open
)

// reachable returns whether the Pods of another namespace can connect to any port of a Pod, by the
// NetworkPolicies of the Pod's namespace, and the name of the policy that admits them; the name is "" if no
// policy selects the Pod.
//
// NetworkPolicies are additive: a connection is admitted if any rule of any policy that selects the Pod
// admits it. The other tenant chooses the labels of its own Pods, so each podSelector of a peer matches
// some of them; it does not choose the labels of its namespace. Egress policies do not count, since they
// would be in the other tenant's namespace.
func reachable(policies []networkingv1.NetworkPolicy, to *corev1.Pod, from labels.Set) (reach, string) {
	worst, by, selected := closed, "", false
	for i := range policies {
		spec := &policies[i].Spec
		if !limitsIngress(spec) || !selects(&spec.PodSelector, to.Labels) {
			continue
		}
		selected = true
		for _, rule := range spec.Ingress {
			if !anyPort(rule.Ports, to) {
				continue
			}
			if r := letsIn(rule.From, from); r > worst {
				worst, by = r, policies[i].Name
			}
		}
	}
	if !selected {
		return open, ""
	}
	return worst, by
}

// limitsIngress reports whether a policy limits ingress. Nearly every policy does, also a policy without
// types, to which the API server adds ingress.
func limitsIngress(spec *networkingv1.NetworkPolicySpec) bool {
	return len(spec.PolicyTypes) == 0 || slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress)
}

// selects reports whether a selector matches labels. The API server accepts only valid selectors.
func selects(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

// anyPort reports whether a rule covers a port that the Pod may listen on: any numeric port, and the named
// ports of the Pod's containers. A rule without ports covers all of them.
func anyPort(ports []networkingv1.NetworkPolicyPort, to *corev1.Pod) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Port == nil || p.Port.Type == intstr.Int {
			return true
		}
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		return slices.ContainsFunc(to.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(named corev1.ContainerPort) bool {
				return named.Name == p.Port.StrVal && cmp.Or(named.Protocol, corev1.ProtocolTCP) == protocol
			})
		})
	})
}

// letsIn returns whether the peers of a rule include Pods of another namespace. An empty list of peers
// includes everybody. A peer without a namespaceSelector selects Pods of the policy's own namespace.
func letsIn(peers []networkingv1.NetworkPolicyPeer, from labels.Set) reach {
	if len(peers) == 0 {
		return open
	}
	worst := closed
	for _, peer := range peers {
		switch {
		case peer.IPBlock != nil:
			worst = max(worst, ofPods(peer.IPBlock))
		case peer.NamespaceSelector != nil && selects(peer.NamespaceSelector, from):
			return open
		}
	}
	return worst
}

// ofPods returns whether a range of addresses includes Pods of the cluster. The addresses of Pods are
// unknown here: the result is open for a range with all private addresses, and unclear for a range with
// some of them. Not every network plugin compares a range with the addresses of Pods.
func ofPods(block *networkingv1.IPBlock) reach {
	cidr, err := netip.ParsePrefix(block.CIDR)
	if err != nil {
		return unclear
	}
	worst, excepted := closed, false
	for _, text := range lockdown.PrivateRanges {
		private := netip.MustParsePrefix(text)
		if private.Addr().IsLinkLocalUnicast() || !private.Overlaps(cidr) {
			continue
		}
		part := private
		if cidr.Bits() > private.Bits() {
			part = cidr
		}
		covered := false
		for _, except := range block.Except {
			e, err := netip.ParsePrefix(except)
			covered = covered || err == nil && e.Bits() <= part.Bits() && e.Overlaps(part)
			excepted = excepted || err == nil && e.Overlaps(private)
		}
		switch {
		case covered:
		case part == private:
			worst = open
		default:
			worst = max(worst, unclear)
		}
	}
	if excepted {
		// The exceptions may contain the addresses of the Pods.
		worst = min(worst, unclear)
	}
	return worst
}

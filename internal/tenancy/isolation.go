package tenancy

import (
	"github.com/tenure-dev/tenure/api/v1alpha1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsolationName is the name of the NetworkPolicy that isolates a tenant's namespace. The policies
// of a Tenant's spec.networkPolicies cannot have this name, because theirs end with a number.
const IsolationName = boundsPrefix + "isolation"

// isolation returns the NetworkPolicy that lets no Pod of another tenant connect to the Pods of
// a namespace; nil for [v1alpha1.IsolationNone]. An unknown mode isolates like
// [v1alpha1.IsolationTenant], which is the default.
//
// The policy has no rule for egress: a connection needs the consent of both ends, and all
// namespaces of tenants refuse connections from other tenants. See docs/design/isolation.md.
func isolation(namespace, tenant, mode string) *networkingv1.NetworkPolicy {
	var from []networkingv1.NetworkPolicyPeer
	switch mode {
	case v1alpha1.IsolationNone:
		return nil
	case v1alpha1.IsolationNamespace:
		from = append(from, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}})
	default:
		for i, label := range tenantLabels {
			from = append(from, inNamespaces(metav1.LabelSelector{
				MatchLabels: map[string]string{label: tenant}, MatchExpressions: without(tenantLabels[:i]),
			}))
		}
	}
	from = append(from, inNamespaces(metav1.LabelSelector{MatchExpressions: without(tenantLabels)}))
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: meta(namespace, IsolationName, tenant),
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: from}},
		},
	}
}

// inNamespaces returns a peer for all Pods of the selected namespaces.
func inNamespaces(selector metav1.LabelSelector) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &selector}
}

// without selects objects that have none of the labels.
func without(labels []string) []metav1.LabelSelectorRequirement {
	var all []metav1.LabelSelectorRequirement
	for _, label := range labels {
		all = append(all, metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	return all
}

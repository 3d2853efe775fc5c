package tenancy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// ClusterPolicyGroup is the group of the Network Policy API.
	ClusterPolicyGroup = "policy.networking.k8s.io"
	// ClusterPolicyResource is the resource of ClusterNetworkPolicies.
	ClusterPolicyResource = "clusternetworkpolicies"
	// ClusterPolicyPriority is the priority of the ClusterNetworkPolicies that the manager
	// writes. It is the last one, so that the platform's own policies come first, and a rule with
	// the action Pass skips none of them.
	ClusterPolicyPriority = 1000
	// clusterPolicyTier comes before all NetworkPolicies.
	clusterPolicyTier = "Admin"
	clusterPolicyKind = "ClusterNetworkPolicy"
)

// ClusterPolicyKinds returns the versions of the kind ClusterNetworkPolicy, the newest first. All of
// them have the same fields.
func ClusterPolicyKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, version := range []string{"v1beta1", "v1alpha2"} {
		kinds = append(kinds, schema.GroupVersionKind{Group: ClusterPolicyGroup, Version: version, Kind: clusterPolicyKind})
	}
	return kinds
}

// clusterPolicySpec has the fields of a ClusterNetworkPolicy that the manager writes. The module of
// the API would add the tools that generate it to the module graph. An empty egress removes the
// rules that others add.
type clusterPolicySpec struct {
	Tier     string              `json:"tier"`
	Priority int64               `json:"priority"`
	Subject  clusterPolicyPeer   `json:"subject"`
	Ingress  []clusterPolicyRule `json:"ingress"`
	Egress   []clusterPolicyRule `json:"egress"`
}

type clusterPolicyRule struct {
	Name   string              `json:"name"`
	Action string              `json:"action"`
	From   []clusterPolicyPeer `json:"from"`
}

type clusterPolicyPeer struct {
	Namespaces metav1.LabelSelector `json:"namespaces"`
}

// ClusterIsolation returns the ClusterNetworkPolicies of a tenant. They deny the connections that
// [isolation] does not let in, so that no NetworkPolicy of the tenant can let them in. Other
// connections pass on to the NetworkPolicies. There is one policy for each label that names the
// tenant and, for [v1alpha1.IsolationNamespace], for each namespace.
//
// The object t is nil if there is no Tenant of that name; it decides for the namespaces with
// [v1alpha1.LabelTenant]. The namespaces are those with the tenant's name in a label. It returns
// an error if a policy cannot be converted.
func ClusterIsolation(kind schema.GroupVersionKind, tenant string, t *v1alpha1.Tenant, namespaces []corev1.Namespace, profile *v1alpha1.TenancyProfile) ([]*unstructured.Unstructured, error) {
	if len(validation.IsDNS1123Label(tenant)) > 0 {
		return nil, nil // see [Desired]
	}
	var policies []*unstructured.Unstructured
	for i, label := range tenantLabels {
		isolated, platform := labelledNamespaces(label, tenant, namespaces, profile)
		if len(isolated) == 0 {
			continue
		}
		of := t
		if label != v1alpha1.LabelTenant {
			of = nil
		}
		var specs map[string]*clusterPolicySpec
		switch Parameters(tenant, of, profile).Tenants.Network.Isolation {
		case v1alpha1.IsolationNone:
		case v1alpha1.IsolationNamespace:
			specs = fromNamespace(i, tenant, isolated)
		default:
			specs = fromTenant(i, tenant, platform)
		}
		for _, name := range slices.Sorted(maps.Keys(specs)) {
			policy, err := clusterPolicy(kind, tenant, name, specs[name])
			if err != nil {
				return nil, err
			}
			policies = append(policies, policy)
		}
	}
	return policies, nil
}

// labelledNamespaces returns the namespaces for which a label names the tenant: isolated are the
// tenant's, and platform those that the profile excludes.
func labelledNamespaces(label, tenant string, namespaces []corev1.Namespace, profile *v1alpha1.TenancyProfile) (isolated, platform []string) {
	for _, ns := range namespaces {
		name, by := LabelledTenant(ns.Labels)
		switch {
		case name != tenant || by != label:
		case OfPlatform(ns.Name, profile):
			platform = append(platform, ns.Name)
		default:
			isolated = append(isolated, ns.Name)
		}
	}
	slices.Sort(platform)
	return isolated, platform
}

// fromTenant returns the policy that leaves connections from all of the tenant's namespaces to the
// NetworkPolicies.
func fromTenant(label int, tenant string, platform []string) map[string]*clusterPolicySpec {
	subject := labelledBy(label, tenant)
	if len(platform) > 0 {
		subject.MatchExpressions = append(subject.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: platform,
		})
	}
	var own []clusterPolicyPeer
	for i := range tenantLabels {
		own = append(own, clusterPolicyPeer{Namespaces: labelledBy(i, tenant)})
	}
	return map[string]*clusterPolicySpec{labelNames[label] + "-" + tenant: denyTenants(subject, own)}
}

// fromNamespace returns the policies that leave connections from the same namespace to the
// NetworkPolicies.
func fromNamespace(label int, tenant string, namespaces []string) map[string]*clusterPolicySpec {
	specs := map[string]*clusterPolicySpec{}
	for _, name := range namespaces {
		subject := labelledBy(label, tenant)
		subject.MatchLabels[corev1.LabelMetadataName] = name
		own := clusterPolicyPeer{Namespaces: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}}
		specs["namespace-"+name] = denyTenants(subject, []clusterPolicyPeer{own})
	}
	return specs
}

// labelNames are short names of the [tenantLabels].
var labelNames = []string{"tenant", "flux", "capsule"}

// labelledBy selects the namespaces whose tenant a label names, by the label's number.
func labelledBy(label int, tenant string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{tenantLabels[label]: tenant}, MatchExpressions: without(tenantLabels[:label])}
}

// denyTenants returns a policy that denies connections to the subject's namespaces from the
// namespaces of all tenants, except from the subject's own. All policies deny the same peers, so
// that a network plugin stores the addresses of the peers once and not for each tenant.
func denyTenants(subject metav1.LabelSelector, own []clusterPolicyPeer) *clusterPolicySpec {
	var tenants []clusterPolicyPeer
	for _, label := range tenantLabels {
		tenants = append(tenants, clusterPolicyPeer{Namespaces: metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpExists}},
		}})
	}
	return &clusterPolicySpec{
		Tier: clusterPolicyTier, Priority: ClusterPolicyPriority, Subject: clusterPolicyPeer{Namespaces: subject},
		Ingress: []clusterPolicyRule{{Name: "own", Action: "Pass", From: own}, {Name: "tenants", Action: "Deny", From: tenants}},
		Egress:  []clusterPolicyRule{},
	}
}

func clusterPolicy(kind schema.GroupVersionKind, tenant, name string, spec *clusterPolicySpec) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, fmt.Errorf("cannot write the %s of tenant %s: %w", kind.Kind, tenant, err)
	}
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	policy.SetGroupVersionKind(kind)
	policy.SetName(IsolationName + "-" + name)
	policy.SetLabels(map[string]string{LabelManaged: ManagedValue, v1alpha1.LabelTenant: tenant})
	return policy, nil
}

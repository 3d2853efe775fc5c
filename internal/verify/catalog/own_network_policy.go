package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clusterPolicyKinds are the kinds of cluster-wide network policies, which precede the NetworkPolicies of
// tenants. A cluster may serve two versions of a kind.
var clusterPolicyKinds = append(tenancy.ClusterPolicyKinds(), schema.GroupVersionKind{Group: tenancy.ClusterPolicyGroup, Version: "v1alpha1", Kind: "AdminNetworkPolicy"})

func addOwnNetworkPolicy(register func(...Attack)) {
	attack := Attack{
		ID: "W12", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"AdminNetworkPolicy", "ClusterNetworkPolicy", "NetworkPolicy"},
		Title:      "opens its Pods to other tenants with its own NetworkPolicy, although the cluster serves policies that override it, or writes one of those (judged by the policies, without traffic)",
		Controls:   []string{"RBAC", "ClusterNetworkPolicy or AdminNetworkPolicy of the platform"},
		References: []string{"Network Policy API: ClusterNetworkPolicy"},
		Fix:        Fix{Advice: "deny connections from the namespaces of other tenants with a ClusterNetworkPolicy of the tier Admin, as Tenure's manager does unless network.isolation is None, and give tenants no rights on the kind"},
		Run:        opensItself,
	}
	register(attack)
	attack.Owners = OwnersNever
	attack = deliversManifests(attack, clusterPolicyKinds[0].Kind, func(e *Scenario) *unstructured.Unstructured {
		return ownClusterPolicy(e.servedClusterPolicy())
	}, ownConfigMap("w12"))
	delivers := attack.Run
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		policies, served, err := e.clusterPolicies(ctx)
		if f, known := unserved(served, err); known {
			return f
		}
		f := delivers(ctx, e)
		if f.Outcome != Stopped {
			return f
		}
		return e.opensBelow(ctx, policies, f)
	}
	register(attack)
}

// servedClusterPolicy returns the first of these kinds that the cluster serves.
func (e *Scenario) servedClusterPolicy() schema.GroupVersionKind {
	i := slices.IndexFunc(clusterPolicyKinds, func(kind schema.GroupVersionKind) bool {
		_, err := e.Admin.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		return err == nil
	})
	return clusterPolicyKinds[max(i, 0)]
}

// ownClusterPolicy returns a cluster-wide policy that allows nothing and denies nothing.
func ownClusterPolicy(kind schema.GroupVersionKind) *unstructured.Unstructured {
	return object(kind.GroupVersion().String(), kind.Kind, "", name("w12"), map[string]any{"spec": map[string]any{
		"tier": "Admin", "priority": int64(1), "subject": map[string]any{"namespaces": map[string]any{}},
	}})
}

// unserved returns the finding if the attack has no target, and whether this is so.
func unserved(served []schema.GroupVersionKind, err error) (Finding, bool) {
	switch {
	case err != nil:
		return notProven("cannot read the network policies of the cluster: " + firstLine(err.Error())), true
	case len(served) == 0:
		return stopped(notInstalled, "the cluster serves no kind of network policies that override those of tenants"), true
	}
	return Finding{}, false
}

// opensItself tries as the tenant to write a cluster-wide policy, to change and delete the policies that
// keep other tenants out, and to write a NetworkPolicy that admits everybody. If the tenant may write the
// latter, a policy of the platform has to precede it.
func opensItself(ctx context.Context, e *Scenario) Finding {
	policies, served, err := e.clusterPolicies(ctx)
	if f, known := unserved(served, err); known {
		return f
	}
	var all []request
	for _, kind := range served {
		all = append(all, request{what: "write a " + kind.Kind, aimed: creating(func(*Scenario) *unstructured.Unstructured { return ownClusterPolicy(kind) })})
	}
	for _, p := range e.standing(policies) {
		all = append(all,
			request{what: "change " + p.Name, aimed: merging(p.Object, `{"spec":{"priority":0,"ingress":[]}}`)},
			request{what: "delete " + p.Name, aimed: func(ctx context.Context, e *Scenario) error {
				return e.As.Delete(ctx, p.Object.DeepCopy(), client.DryRunAll)
			}},
			request{what: "delete all policies with " + p.Name, aimed: func(ctx context.Context, e *Scenario) error {
				return e.As.DeleteAllOf(ctx, p.Object.DeepCopy(), client.DryRunAll)
			}},
		)
	}
	f := requests(all...)(ctx, e)
	if f.Outcome != Stopped {
		return f
	}
	return e.opensBelow(ctx, policies, f)
}

// opensBelow tries a NetworkPolicy that admits everybody. f is the finding about cluster-wide policies that
// the tenant would write.
func (e *Scenario) opensBelow(ctx context.Context, policies clusterPolicies, f Finding) Finding {
	own := judge(e.tryCreate(ctx, object("networking.k8s.io/v1", "NetworkPolicy", e.Namespace, name("w12"), map[string]any{"spec": map[string]any{
		"podSelector": map[string]any{}, "policyTypes": []any{"Ingress"}, "ingress": []any{map[string]any{}},
	}})), "")
	switch own.Outcome {
	case Stopped:
		return f.and(own)
	case NotProven:
		return own
	}
	above := ""
	for _, ns := range e.namespaces {
		if !slices.Contains(e.Tenant.Namespaces, ns.Name) {
			continue
		}
		for _, from := range e.strangers() {
			by := policies.deny(ns.Labels, from)
			if doubts := e.networkDoubtsOf(ns.Name); by == nil && len(doubts) > 0 && len(policies) == 0 {
				return notProven("its NetworkPolicy may be overridden by " + doubts[0])
			}
			if by == nil {
				return gotThrough(fmt.Sprintf("it could let the Pods of other tenants in to namespace %s with a NetworkPolicy of its own: no policy of the cluster denies them", ns.Name))
			}
			above = by.Name
		}
	}
	return stopped(above+", "+f.Control, above+" denies connections from other tenants, whatever the NetworkPolicies of the tenant let in")
}

// standing returns the policies that deny connections from other tenants to the tenant's namespaces.
func (e *Scenario) standing(policies clusterPolicies) []*clusterPolicy {
	var all []*clusterPolicy
	for _, ns := range e.namespaces {
		if !slices.Contains(e.Tenant.Namespaces, ns.Name) {
			continue
		}
		for _, from := range e.strangers() {
			if p := policies.deny(ns.Labels, from); p != nil && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// clusterPolicies returns the cluster-wide policies that NetworkPolicies cannot override, in the order of
// their priority, and the kinds that the cluster serves.
func (e *Scenario) clusterPolicies(ctx context.Context) (clusterPolicies, []schema.GroupVersionKind, error) {
	var policies clusterPolicies
	var served []schema.GroupVersionKind
	for _, kind := range clusterPolicyKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := e.Admin.List(ctx, list); err != nil {
			if meta.IsNoMatchError(err) {
				continue
			}
			return nil, nil, err
		}
		served = append(served, kind)
		for _, u := range list.Items {
			var p clusterPolicy
			spec, _, _ := unstructured.NestedMap(u.Object, "spec")
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &p); err != nil {
				return nil, nil, fmt.Errorf("%s %s: %w", kind.Kind, u.GetName(), err)
			}
			// The conversion clears fields that spec does not have.
			p.Name, p.Object = kind.Kind+" "+u.GetName(), &u
			// NetworkPolicies override a policy of the tier Baseline.
			if p.Tier == "" || p.Tier == "Admin" {
				policies = append(policies, p)
			}
		}
	}
	slices.SortStableFunc(policies, func(a, b clusterPolicy) int { return cmp.Compare(a.Priority, b.Priority) })
	return policies, served, nil
}

// clusterPolicies are policies in the order of their priority.
type clusterPolicies []clusterPolicy

// clusterPolicy contains the fields of a ClusterNetworkPolicy or an AdminNetworkPolicy about connections to
// namespaces.
type clusterPolicy struct {
	Object   *unstructured.Unstructured `json:"-"`
	Name     string                     `json:"-"`
	Tier     string                     `json:"tier,omitempty"`
	Priority int64                      `json:"priority,omitempty"`
	Subject  clusterPolicyPeer          `json:"subject"`
	Ingress  []struct {
		Action    string              `json:"action"`
		From      []clusterPolicyPeer `json:"from"`
		Ports     []any               `json:"ports,omitempty"`
		Protocols []any               `json:"protocols,omitempty"`
	} `json:"ingress,omitempty"`
}

// clusterPolicyPeer selects all Pods of namespaces, or some of them.
type clusterPolicyPeer struct {
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	Pods       *struct {
		NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
	} `json:"pods,omitempty"`
}

// selector returns the selector of the peer's namespaces, or nil.
func (p clusterPolicyPeer) selector() *metav1.LabelSelector {
	if p.Pods != nil {
		return &p.Pods.NamespaceSelector
	}
	return p.Namespaces
}

// selects reports whether the peer selects all Pods of a namespace, and whether it selects some of them.
func (p clusterPolicyPeer) selects(namespace labels.Set) (whole, part bool) {
	if p.Namespaces != nil {
		is := selects(p.Namespaces, namespace)
		return is, is
	}
	return false, p.Pods != nil && selects(&p.Pods.NamespaceSelector, namespace)
}

// deny returns the policy that denies all connections from the Pods of one namespace to the Pods of
// another, or nil. A denying rule about some Pods or some ports does not suffice; an allowing rule about
// some of them is enough to admit connections.
func (p clusterPolicies) deny(to, from labels.Set) *clusterPolicy {
	for i := range p {
		policy := &p[i]
		all, some := policy.Subject.selects(to)
		for _, rule := range policy.Ingress {
			for _, peer := range rule.From {
				whole, part := peer.selects(from)
				limited := len(rule.Ports)+len(rule.Protocols) > 0
				switch {
				case rule.Action == "Deny" && all && whole && !limited:
					return policy
				case rule.Action != "Deny" && some && part:
					return nil
				}
			}
		}
	}
	return nil
}

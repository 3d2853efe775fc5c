package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// networkPolicies is the control of an attack that NetworkPolicies stop.
const networkPolicies = "network policies"

func addForeignConnections(register func(...Attack)) {
	register(Attack{
		ID: "W8", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"NetworkPolicy"},
		Slow:       true,
		Title:      "has Pods to which the Pods of other tenants can connect, or opens its Pods to them (judged by the NetworkPolicies, without traffic)",
		Controls:   []string{networkPolicies, "RBAC", "policy on platform-managed objects"},
		References: []string{"Kubernetes documentation: multi-tenancy"},
		Fix: Fix{Advice: "put a NetworkPolicy into each namespace of each tenant that selects all Pods and lets in only the tenant's own namespaces and the platform's, " +
			"as Tenure's manager does, and let no tenant change it; the network plugin of the cluster must enforce it"},
		Run: connects,
	})
}

// connects judges the NetworkPolicies of the tenant's namespaces. Then it tries to change the platform's
// policies as the tenant, and to open the namespace of another tenant.
func connects(ctx context.Context, e *Scenario) Finding {
	above, _, err := e.clusterPolicies(ctx)
	if err != nil {
		return notProven("cannot read the network policies of the cluster: " + firstLine(err.Error()))
	}
	var all []request
	message := ""
	for _, namespace := range e.Tenant.Namespaces {
		var policies networkingv1.NetworkPolicyList
		var pods corev1.PodList
		for _, list := range []client.ObjectList{&policies, &pods} {
			if err := e.Admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return notProven("cannot read the NetworkPolicies and Pods of namespace " + namespace + ": " + firstLine(err.Error()))
			}
		}
		f := e.judgeConnections(namespace, above, policies.Items, pods.Items)
		if f.Outcome != Stopped {
			return f
		}
		message = cmp.Or(message, f.Message)
		for _, p := range policies.Items {
			if e.platforms(p.Labels) {
				u := object("networking.k8s.io/v1", "NetworkPolicy", namespace, p.Name, nil)
				which := fmt.Sprintf("NetworkPolicy %s/%s", namespace, p.Name)
				all = append(all,
					request{what: "let all Pods in by a change of " + which, aimed: merging(u, `{"spec":{"ingress":[{}]}}`)},
					request{what: "delete " + which, aimed: func(ctx context.Context, e *Scenario) error { return e.As.Delete(ctx, u.DeepCopy(), client.DryRunAll) }},
					emptying(*u),
				)
			}
		}
	}
	all = append(all, request{what: "let all Pods in to the Pods of another tenant", aimed: creating(func(e *Scenario) *unstructured.Unstructured {
		return object("networking.k8s.io/v1", "NetworkPolicy", e.Victim.Namespace, name("w8"), map[string]any{"spec": map[string]any{
			"podSelector": map[string]any{}, "policyTypes": []any{"Ingress"}, "ingress": []any{map[string]any{}},
		}})
	})})
	f := requests(all...)(ctx, e)
	if f.Outcome != Stopped {
		return f
	}
	return stopped(networkPolicies+", "+f.Control, cmp.Or(message, f.Message))
}

// judgeConnections returns whether Pods of other tenants can connect to the Pods of a namespace: to the
// running Pods, and to a Pod without labels and named ports. The tenant may admit connections with its own
// policies, so such policies count only if they isolate Pods. ClusterNetworkPolicies that precede
// NetworkPolicies isolate Pods whatever the NetworkPolicies admit.
func (e *Scenario) judgeConnections(namespace string, above clusterPolicies, policies []networkingv1.NetworkPolicy, pods []corev1.Pod) Finding {
	platforms := slices.DeleteFunc(slices.Clone(policies), func(p networkingv1.NetworkPolicy) bool { return !e.platforms(p.Labels) })
	var names []string
	for _, p := range policies {
		names = append(names, p.Name)
	}
	worst, evidence := closed, ""
	for _, from := range e.strangers() {
		if p := above.deny(e.labelsOf(namespace), from); p != nil {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
			continue
		}
		for _, to := range append([]corev1.Pod{{}}, pods...) {
			if to.Spec.HostNetwork {
				continue // a Pod of the node's network, which W3 is about
			}
			found, _ := reachable(policies, &to, from)
			byPlatform, policy := reachable(platforms, &to, from)
			if found = min(found, byPlatform); found <= worst {
				continue
			}
			worst, evidence = found, "no NetworkPolicy of the platform isolates them"
			if policy != "" {
				evidence = "NetworkPolicy " + namespace + "/" + policy + " lets them in"
			}
		}
	}
	doubts := e.networkDoubtsOf(namespace)
	evidence = fmt.Sprintf("Pods of other tenants could connect to its Pods in namespace %s: %s", namespace, evidence)
	switch {
	case worst == closed:
		return stopped(networkPolicies, fmt.Sprintf("the policies for namespace %s let in no Pod of another tenant: %s", namespace, strings.Join(names, ", ")))
	case e.lacks != "":
		return notProven(evidence + ", but a part of the fleet may be missing: " + e.lacks)
	case len(doubts) > 0:
		return notProven(evidence + ", but these may isolate them: " + strings.Join(doubts, ", "))
	case worst == unclear:
		return notProven(evidence + " if their addresses are in its ranges: except the range of the Pods, or select namespaces")
	}
	return gotThrough(evidence)
}

// labelsOf returns the labels of a namespace.
func (e *Scenario) labelsOf(namespace string) labels.Set {
	for _, ns := range e.namespaces {
		if ns.Name == namespace {
			return ns.Labels
		}
	}
	return nil
}

// strangers returns the labels of the namespaces of other tenants. For a tenant without neighbours, it
// returns the labels of a namespace like the tenant's own, with the name of another tenant.
func (e *Scenario) strangers() []labels.Set {
	var all []labels.Set
	invented := labels.Set{corev1.LabelMetadataName: e.Victim.Namespace}
	for _, ns := range e.namespaces {
		switch {
		case slices.Contains(e.Tenant.Namespaces, ns.Name):
			if _, label := tenancy.LabelledTenant(ns.Labels); label != "" {
				invented[label] = e.Victim.Namespace
			}
		case e.ofOthers(ns.Name):
			all = append(all, ns.Labels)
		}
	}
	if len(all) == 0 {
		all = append(all, invented)
	}
	return all
}

// ofOthers reports whether a namespace belongs to another tenant.
func (e *Scenario) ofOthers(namespace string) bool {
	for _, t := range e.tenants {
		if t.Name != e.Tenant.Name && slices.Contains(t.Namespaces, namespace) {
			return true
		}
	}
	return false
}

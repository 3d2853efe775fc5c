package lockdown

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servingControllers are the controllers that serve the artifacts of all tenants to every client that reaches them.
var servingControllers = []string{"source-controller", "source-watcher"}

// controllerPods are the Pods of a Deployment that runs one of Flux's controllers. The Pods of a shard have labels of
// their own.
type controllerPods struct {
	controller, deployment string
	labels                 labels.Set
}

// podsOf returns the Pods of Flux's controllers.
func podsOf(deployments []*unstructured.Unstructured) (all []controllerPods) {
	for _, d := range deployments {
		if name := controllerOf(d); slices.Contains(fluxControllers, name) {
			has, _, _ := unstructured.NestedStringMap(d.Object, "spec", "template", "metadata", "labels")
			all = append(all, controllerPods{controller: name, deployment: d.GetName(), labels: has})
		}
	}
	return all
}

// artifactPort is the port of the artifacts, by number and by name.
var artifactPort = []intstr.IntOrString{intstr.FromInt32(9090), intstr.FromString("http")}

// network checks that network policies keep tenants' Pods from the artifacts of others, and
// notifications from the cluster's addresses. It cannot check whether the cluster's network
// enforces policies.
func (c Cluster) network(ctx context.Context) ([]Result, error) {
	found, err := c.list(ctx, schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	var policies []networkingv1.NetworkPolicy
	for _, u := range found {
		var p networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); err != nil {
			return nil, fmt.Errorf("cannot read NetworkPolicy %s: %w", u.GetName(), err)
		}
		policies = append(policies, p)
	}
	deployments, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	pods := podsOf(deployments)
	wrong := artifactsOpen(policies, pods)
	results := []Result{result("network policies", wrong == "", "keep other namespaces from the artifacts, if the network enforces them", wrong)}
	wrong = metricsOpen(policies, pods)
	results = append(results, result("metrics", wrong == "", "of Flux's controllers are kept from tenants, if the network enforces policies", wrong).advise(lockDown))
	shown, err := c.shown(ctx, deployments)
	if err != nil {
		return nil, err
	}
	results = append(results, result("artifacts", len(shown) == 0, "are served only inside the cluster", strings.Join(shown, "; ")).about(shown...))
	addresses, err := c.addresses(ctx)
	if err != nil {
		return nil, err
	}
	wrong = notificationsReach(policies, addresses)
	return append(results, result("notifications", wrong == "", "go only to addresses outside of the cluster, if the network enforces policies", wrong).advise(lockDown)), nil
}

// shown returns a message for each Service that exposes source-controller's artifacts
// outside of the cluster, and for each Deployment that bypasses network policies.
func (c Cluster) shown(ctx context.Context, deployments []*unstructured.Unstructured) ([]string, error) {
	var shown []string
	services, err := c.list(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Service"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	for _, s := range services {
		app, _, _ := unstructured.NestedString(s.Object, "spec", "selector", "app")
		kind, _, _ := unstructured.NestedString(s.Object, "spec", "type")
		external, _, _ := unstructured.NestedSlice(s.Object, "spec", "externalIPs")
		if strings.HasPrefix(app, "source-controller") && (kind != string(corev1.ServiceTypeClusterIP) && kind != "" || len(external) > 0) {
			shown = append(shown, ObjectName(s)+" exposes the artifacts of all tenants outside of the cluster: set the type ClusterIP, without external addresses")
		}
	}
	for _, d := range deployments {
		host, _, _ := unstructured.NestedBool(d.Object, "spec", "template", "spec", "hostNetwork")
		if name := controllerOf(d); host && (name == "source-controller" || name == notificationController["app"]) {
			shown = append(shown, ObjectName(d)+" uses the network of its node, where no network policy applies: remove spec.template.spec.hostNetwork")
		}
	}
	return shown, nil
}

// addresses returns one address of a Service and one of a Pod, as samples of the
// cluster's own addresses.
func (c Cluster) addresses(ctx context.Context) (map[string]netip.Addr, error) {
	found := map[string]netip.Addr{}
	for _, from := range []struct {
		kind, namespace, what string
		path                  []string
	}{{"Service", "default", "Services", []string{"spec", "clusterIP"}}, {"Pod", c.Namespace, "Pods", []string{"status", "podIP"}}} {
		objects, err := c.list(ctx, schema.GroupVersionKind{Version: "v1", Kind: from.kind}, client.InNamespace(from.namespace))
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			text, _, _ := unstructured.NestedString(o.Object, from.path...)
			if address, err := netip.ParseAddr(text); err == nil {
				found[from.what] = address
				break
			}
		}
	}
	return found, nil
}

// notificationController selects the controller that posts to addresses that tenants
// choose.
var notificationController = labels.Set{"app": "notification-controller"}

// notificationsReach returns a message about the cluster's addresses that notifications
// may reach, or "" if there are none. It ignores rules for DNS and for the API server.
func notificationsReach(policies []networkingv1.NetworkPolicy, addresses map[string]netip.Addr) string {
	held := false
	var open []string
	for _, p := range policies {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || !selector.Matches(notificationController) || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			continue
		}
		held = true
		for _, rule := range p.Spec.Egress {
			if !forAnything(rule.Ports) {
				continue
			}
			for _, what := range slices.Sorted(maps.Keys(addresses)) {
				if len(rule.To) == 0 || slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool { return leadsTo(peer, addresses[what]) }) {
					open = append(open, fmt.Sprintf("%s lets notification-controller reach the addresses of %s, such as %s", p.Name, what, addresses[what]))
				}
			}
		}
	}
	switch {
	case !held:
		return "no network policy limits the addresses to which notification-controller posts"
	case len(open) > 0:
		return strings.Join(open, "; ") + "; ranges that are not private need --cluster-range"
	}
	return ""
}

// forAnything reports whether the ports include others than the ports of DNS and of the API
// server.
func forAnything(ports []networkingv1.NetworkPolicyPort) bool {
	known := []intstr.IntOrString{intstr.FromInt32(53), intstr.FromInt32(443), intstr.FromInt32(6443)}
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return p.Port == nil || p.EndPort != nil || !slices.Contains(known, *p.Port)
	})
}

// leadsTo reports whether a peer may include an address. A peer that selects Pods of its
// own namespace by labels does not: tenants cannot choose these.
func leadsTo(peer networkingv1.NetworkPolicyPeer, address netip.Addr) bool {
	if peer.IPBlock == nil {
		return peer.NamespaceSelector != nil
	}
	in := func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		return err == nil && prefix.Contains(address)
	}
	return in(peer.IPBlock.CIDR) && !slices.ContainsFunc(peer.IPBlock.Except, in)
}

// limits returns the Deployments of Flux whose incoming traffic no policy limits, and the policies that select one of
// the others and have a rule that opens their Pods.
func limits(policies []networkingv1.NetworkPolicy, pods []controllerPods, opens func(networkingv1.NetworkPolicyIngressRule) bool) (unlimited, open []string) {
	limited := map[string]bool{}
	for _, p := range policies {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || !incoming(p.Spec) {
			continue
		}
		selects := false
		for _, of := range pods {
			if selector.Matches(of.labels) {
				selects, limited[of.deployment] = true, true
			}
		}
		if selects && slices.ContainsFunc(p.Spec.Ingress, opens) {
			open = append(open, p.Name)
		}
	}
	for _, of := range pods {
		if !limited[of.deployment] {
			unlimited = append(unlimited, of.deployment)
		}
	}
	return unlimited, open
}

// artifactsOpen returns why Pods of other namespaces may reach artifacts, or "" if they may not.
func artifactsOpen(policies []networkingv1.NetworkPolicy, pods []controllerPods) string {
	servers := slices.DeleteFunc(slices.Clone(pods), func(of controllerPods) bool { return !slices.Contains(servingControllers, of.controller) })
	unlimited, open := limits(policies, servers, fromOutside)
	switch {
	case len(unlimited) > 0:
		return "none limits the access to " + strings.Join(unlimited, ", ") + ", and so to the artifacts of all tenants: apply the policies of `flux install`"
	case len(open) > 0:
		return strings.Join(open, ", ") + " let other namespaces reach the artifacts of source-controller: allow Flux's own namespace alone"
	}
	return ""
}

// metricsPort is the port of a controller's metrics and profiles, by number and by name.
var metricsPort = []intstr.IntOrString{intstr.FromInt32(8080), intstr.FromString("http-prom")}

// tenantLabels are the labels that assign a namespace to a tenant.
var tenantLabels = []string{v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant}

// metricsOpen returns why Pods of tenants may reach the metrics of some of Flux's controllers, or "" if they may not.
// The metrics name the objects of all tenants, and the same port serves profiles, which cost the controller time. A
// rule about addresses counts for none: it names no namespaces.
func metricsOpen(policies []networkingv1.NetworkPolicy, pods []controllerPods) string {
	unlimited, open := limits(policies, pods, fromTenants)
	switch {
	case len(unlimited) > 0:
		return "none limits the access to " + strings.Join(unlimited, ", ") + ", whose metrics name the objects of all tenants: apply the policies of `flux install`"
	case len(open) > 0:
		return strings.Join(open, ", ") + " lets tenants reach the metrics of Flux's controllers, which name the objects of all tenants, and their profiles: allow namespaces without the label of a tenant"
	}
	return ""
}

// fromTenants reports whether a rule lets Pods in the namespace of a tenant reach the metrics.
func fromTenants(rule networkingv1.NetworkPolicyIngressRule) bool {
	return opens(rule, metricsPort) && (len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.NamespaceSelector == nil {
			return false
		}
		namespaces, err := metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
		return err == nil && slices.ContainsFunc(tenantLabels, func(label string) bool {
			return namespaces.Matches(labels.Set{label: "any", corev1.LabelMetadataName: "any"})
		})
	}))
}

// incoming reports whether a policy limits incoming traffic, which is the default of policies
// without types.
func incoming(spec networkingv1.NetworkPolicySpec) bool {
	return len(spec.PolicyTypes) == 0 || slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress)
}

// fromOutside reports whether a rule lets Pods of other namespaces reach the artifacts.
func fromOutside(rule networkingv1.NetworkPolicyIngressRule) bool {
	return opens(rule, artifactPort) && (len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.NamespaceSelector != nil || peer.IPBlock != nil
	}))
}

// opens reports whether a rule is about a port, which has a number and a name.
func opens(rule networkingv1.NetworkPolicyIngressRule, port []intstr.IntOrString) bool {
	return len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			return false
		}
		if p.Port == nil || slices.Contains(port, *p.Port) {
			return true
		}
		number := port[0].IntVal
		return p.EndPort != nil && p.Port.Type == intstr.Int && p.Port.IntVal <= number && number <= *p.EndPort
	})
}

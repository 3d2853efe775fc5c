package profile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sourceController serves all artifacts, of all tenants, to whoever reaches it.
var sourceController = labels.Set{"app": "source-controller"}

// artifactPort is where it serves them, by number and by name.
var artifactPort = []intstr.IntOrString{intstr.FromInt32(9090), intstr.FromString("http")}

// network checks that network policies keep tenants' Pods from the artifacts of
// others. Whether the network of the cluster enforces policies cannot be seen.
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
	wrong := artifactsOpen(policies)
	return []Result{result("network policies", wrong == "", "keep other namespaces from source-controller, if the network enforces them", wrong)}, nil
}

// artifactsOpen says why Pods of other namespaces may reach source-controller's
// artifacts; "" if they may not.
func artifactsOpen(policies []networkingv1.NetworkPolicy) string {
	var open []string
	held := false
	for _, p := range policies {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || !selector.Matches(sourceController) || !incoming(p.Spec) {
			continue
		}
		held = true
		if slices.ContainsFunc(p.Spec.Ingress, fromOutside) {
			open = append(open, p.Name)
		}
	}
	switch {
	case !held:
		return "none holds back who reaches source-controller, which serves the artifacts of all tenants: apply those that `flux install` brings"
	case len(open) > 0:
		return strings.Join(open, ", ") + " let other namespaces reach the artifacts of source-controller: allow Flux's own namespace alone"
	}
	return ""
}

// incoming says whether a policy holds back what comes in, which is what one
// without types does.
func incoming(spec networkingv1.NetworkPolicySpec) bool {
	return len(spec.PolicyTypes) == 0 || slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress)
}

// fromOutside says whether a rule lets somebody of another namespace reach the
// artifacts.
func fromOutside(rule networkingv1.NetworkPolicyIngressRule) bool {
	reaches := len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			return false
		}
		if p.Port == nil || slices.Contains(artifactPort, *p.Port) {
			return true
		}
		number := artifactPort[0].IntVal
		return p.EndPort != nil && p.Port.Type == intstr.Int && p.Port.IntVal <= number && number <= *p.EndPort
	})
	return reaches && (len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.NamespaceSelector != nil || peer.IPBlock != nil
	}))
}

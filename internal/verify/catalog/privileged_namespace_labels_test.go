package catalog

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestJoins lets the tenant put other labels on its namespace.
func TestJoins(t *testing.T) {
	t.Parallel()
	labelled := map[string]any{"matchLabels": map[string]any{"access": "yes"}}
	network := func(namespace, selector string) client.Object {
		parsed, err := metav1.ParseToLabelSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		return &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "doors"},
			Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: parsed}}}}},
		}
	}
	cluster := func(action string) client.Object {
		return object("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", "", "doors", map[string]any{"spec": map[string]any{
			"tier": "Admin", "subject": map[string]any{"namespaces": map[string]any{}},
			"ingress": []any{map[string]any{"action": action, "from": []any{map[string]any{"namespaces": labelled}}}},
		}})
	}
	gateway := object("gateway.networking.k8s.io/v1", "Gateway", "infra", "shared", map[string]any{"spec": map[string]any{"listeners": []any{
		map[string]any{"allowedRoutes": map[string]any{"namespaces": map[string]any{"from": "Same"}}},
		map[string]any{"allowedRoutes": map[string]any{"namespaces": map[string]any{"from": "Selector", "selector": labelled}}},
	}}})
	image := object("image.toolkit.fluxcd.io/v1", "ImageRepository", "infra", "app", map[string]any{"spec": map[string]any{
		"accessFrom": map[string]any{"namespaceSelectors": []any{labelled}},
	}})
	profile := object("tenure.dev/v1alpha1", "TenancyProfile", "", "default", map[string]any{"spec": map[string]any{
		"namespaceMetadata": map[string]any{"labels": []any{"acc*"}},
	}})
	for _, tc := range []struct {
		reason, accepted string
		objects          []client.Object
		want             Outcome
		words            string
	}{
		{"no label can be changed", "", []client.Object{network("other", "access=yes")}, Stopped, "tenure-namespaces"},
		{"a NetworkPolicy of others", `"access":"yes"`, []client.Object{network("other", "access=yes")}, GotThrough, "be selected by the NetworkPolicy other/doors"},
		{"its own NetworkPolicy", `"access":"yes"`, []client.Object{network("team", "access=yes")}, Stopped, "tenure-namespaces"},
		{"a NetworkPolicy that selects it already", `"stage"`, []client.Object{network("other", "stage=test")}, Stopped, "tenure-namespaces"},
		{"several labels", `{"access":"yes","stage":null}`, []client.Object{network("other", "access in (yes, you),!stage")}, GotThrough, "NetworkPolicy other/doors"},
		{"a namespace by its name", `"access":"yes"`, []client.Object{network("other", "access=yes,kubernetes.io/metadata.name=infra")}, Stopped, "tenure-namespaces"},
		{"others with other values", `"access":"c"`, []client.Object{network("a", "access=a"), network("b", "access=b"), network("c", "access=c"), network("d", "access=d")}, GotThrough, "NetworkPolicy c/doors"},
		{"no more than three values", `"access":"d"`, []client.Object{network("a", "access=a"), network("b", "access=b"), network("c", "access=c"), network("d", "access=d")}, Stopped, "tenure-namespaces"},
		{"a ClusterNetworkPolicy", `"access":"yes"`, []client.Object{cluster("Accept")}, GotThrough, "be selected by the ClusterNetworkPolicy doors"},
		{"a ClusterNetworkPolicy that denies", `"access":"yes"`, []client.Object{cluster("Deny")}, Stopped, "tenure-namespaces"},
		{"a Gateway", `"access":"yes"`, []client.Object{gateway}, GotThrough, "be selected by the Gateway infra/shared"},
		{"an ImageRepository", `"access":"yes"`, []client.Object{image}, GotThrough, "be selected by the ImageRepository infra/app"},
		{"owners choose the label", `"access":"yes"`, []client.Object{gateway, profile}, Stopped, "tenure-namespaces"},
		{"owners choose one of two labels", `"b":"tenure-attack-i18"`, []client.Object{network("other", "access=yes,b"), profile}, GotThrough, "NetworkPolicy other/doors"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			e := changingLabels(tc.accepted, tc.objects...)
			f := relabelling((*Scenario).joins, request{what: "use a gateway", aimed: patchNamespace("", `{"metadata":{"labels":{"x":"y"}}}`)})(t.Context(), e)
			if said := f.Control + f.Evidence + f.Reason; f.Outcome != tc.want || !strings.Contains(said, tc.words) {
				t.Errorf("got %+v, want %s with %q", f, tc.want, tc.words)
			}
		})
	}
}

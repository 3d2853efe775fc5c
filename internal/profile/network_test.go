package profile

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func TestArtifactsOpen(t *testing.T) {
	t.Parallel()
	policies := func(documents ...string) (all []networkingv1.NetworkPolicy) {
		for _, d := range documents {
			var p networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict([]byte(d), &p); err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		return all
	}
	const own = "{metadata: {name: own}, spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}}"
	for _, tc := range []struct {
		reason    string
		documents []string
		want      string
	}{
		{"none at all", nil, "none holds back"},
		{"for another controller only", []string{"{metadata: {name: n}, spec: {podSelector: {matchLabels: {app: x}}}}"}, "none holds back"},
		{"for what goes out only", []string{"{metadata: {name: n}, spec: {podSelector: {}, policyTypes: [Egress]}}"}, "none holds back"},
		{"from its own namespace", []string{own}, ""},
		{"from nowhere", []string{"{metadata: {name: n}, spec: {podSelector: {}}}"}, ""},
		{"metrics for everybody", []string{own, "{metadata: {name: n}, spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 8080}]}]}}"}, ""},
		{"everything for everybody", []string{own, "{metadata: {name: all}, spec: {podSelector: {}, ingress: [{}]}}"}, "all let other namespaces"},
		{"artifacts for one namespace", []string{own, "{metadata: {name: one}, spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {a: b}}}], ports: [{port: http}]}]}}"}, "one let"},
		{"a range of ports", []string{own, "{metadata: {name: range}, spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: 9000, endPort: 9100}]}]}}"}, "range let"},
		{"UDP", []string{own, "{metadata: {name: udp}, spec: {podSelector: {}, ingress: [{ports: [{port: 9090, protocol: UDP}]}]}}"}, ""},
	} {
		got := artifactsOpen(policies(tc.documents...))
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func TestUpstreamNetworkPoliciesAreEnough(t *testing.T) {
	t.Parallel()
	objects, err := flux.ReadObjects(config.FluxComponents())
	if err != nil {
		t.Fatal(err)
	}
	var all []networkingv1.NetworkPolicy
	for _, o := range objects {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		var p networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if got := artifactsOpen(all); len(all) == 0 || got != "" {
		t.Errorf("of %d policies: %s", len(all), got)
	}
}

package lockdown

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
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
		{"none at all", nil, "none limits the access"},
		{"for another controller only", []string{"{metadata: {name: n}, spec: {podSelector: {matchLabels: {app: x}}}}"}, "none limits the access"},
		{"for what goes out only", []string{"{metadata: {name: n}, spec: {podSelector: {}, policyTypes: [Egress]}}"}, "none limits the access"},
		{"from its own namespace", []string{own}, ""},
		{"from nowhere", []string{"{metadata: {name: n}, spec: {podSelector: {}}}"}, ""},
		{"metrics for everybody", []string{own, "{metadata: {name: n}, spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 8080}]}]}}"}, ""},
		{"everything for everybody", []string{own, "{metadata: {name: all}, spec: {podSelector: {}, ingress: [{}]}}"}, "all let other namespaces"},
		{"artifacts for one namespace", []string{own, "{metadata: {name: one}, spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {a: b}}}], ports: [{port: http}]}]}}"}, "one let"},
		{"a range of ports", []string{own, "{metadata: {name: range}, spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: 9000, endPort: 9100}]}]}}"}, "range let"},
		{"UDP", []string{own, "{metadata: {name: udp}, spec: {podSelector: {}, ingress: [{ports: [{port: 9090, protocol: UDP}]}]}}"}, ""},
	} {
		got := artifactsOpen(policies(tc.documents...), ofControllers("source-controller"))
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func TestMetricsOpen(t *testing.T) {
	t.Parallel()
	if got := metricsOpen(policiesOf(t, config.FluxComponents()), ofControllers(fluxControllers...)); !strings.Contains(got, "allow-scraping lets tenants reach") {
		t.Errorf("Flux's own policies: got %q", got)
	}
	const others = "{namespaceSelector: {matchExpressions: [{key: tenure.dev/tenant, operator: DoesNotExist}, {key: toolkit.fluxcd.io/tenant, operator: DoesNotExist}, {key: capsule.clastix.io/tenant, operator: DoesNotExist}]}}"
	for _, tc := range []struct{ reason, pods, ingress, want string }{
		{"namespaces of no tenant", "", "{from: [" + others + "], ports: [{port: 8080}]}", ""},
		{"one namespace by its name", "", "{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}], ports: [{port: 8080}]}", ""},
		{"one label of tenants is forgotten", "", "{from: [{namespaceSelector: {matchExpressions: [{key: tenure.dev/tenant, operator: DoesNotExist}]}}], ports: [{port: 8080}]}", "open lets tenants"},
		{"all namespaces", "", "{from: [{namespaceSelector: {}}], ports: [{port: http-prom}]}", "open lets tenants"},
		{"everybody, at each port", "", "{}", "open lets tenants"},
		{"another port", "", "{from: [{namespaceSelector: {}}], ports: [{port: 9292}]}", ""},
		{"chosen Pods of all namespaces, who choose their labels", "", "{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: prometheus}}}]}", "open lets tenants"},
		{"Pods of Flux's namespace", "", "{from: [{podSelector: {}}]}", ""},
		{"addresses, which the policy cannot tell from those of tenants", "", "{from: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 8080}]}", ""},
		{"Pods of another program", "{matchLabels: {app: tenure-manager}}", "{}", "none limits the access to kustomize-controller"},
		{"nothing about what comes in", "", "", ""},
		{"one controller", "{matchLabels: {app: kustomize-controller}}", "{}", "open lets tenants"},
	} {
		var p networkingv1.NetworkPolicy
		pods := tc.pods
		if pods == "" {
			pods = "{}"
		}
		if err := yaml.UnmarshalStrict([]byte("{metadata: {name: open}, spec: {podSelector: "+pods+", ingress: ["+tc.ingress+"]}}"), &p); err != nil {
			t.Fatal(err)
		}
		got := metricsOpen([]networkingv1.NetworkPolicy{p}, ofControllers("kustomize-controller"))
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
	if got := metricsOpen(nil, ofControllers("kustomize-controller")); !strings.Contains(got, "none limits the access to kustomize-controller") {
		t.Errorf("without policies: got %q", got)
	}
}

// ofControllers returns the Pods of controllers with the labels of Flux's manifests.
func ofControllers(names ...string) (all []controllerPods) {
	for _, name := range names {
		all = append(all, controllerPods{controller: name, deployment: name, labels: labels.Set{"app": name, "app.kubernetes.io/component": name}})
	}
	return all
}

// TestPoliciesOfShards checks that a policy that selects a controller by its label app does not count for the Pods of a shard,
// which have another one.
func TestPoliciesOfShards(t *testing.T) {
	t.Parallel()
	deployment := func(name, controller string) *unstructured.Unstructured {
		d := &unstructured.Unstructured{}
		d.SetName(name)
		d.SetLabels(map[string]string{"app.kubernetes.io/component": controller, "app.kubernetes.io/part-of": "flux"})
		if err := unstructured.SetNestedStringMap(d.Object, map[string]string{"app": name, "app.kubernetes.io/component": controller}, "spec", "template", "metadata", "labels"); err != nil {
			t.Fatal(err)
		}
		return d
	}
	pods := podsOf([]*unstructured.Unstructured{
		deployment("source-controller", "source-controller"), deployment("source-controller-a", "source-controller"), deployment("reloader", "reloader"),
	})
	for _, tc := range []struct{ reason, selector, want string }{
		{"only the first has the label", "{matchLabels: {app: source-controller}}", "none limits the access to source-controller-a,"},
		{"the shard alone", "{matchLabels: {app: source-controller-a}}", "none limits the access to source-controller,"},
		{"a label that both have", "{matchLabels: {app.kubernetes.io/component: source-controller}}", ""},
		{"all Pods", "{}", ""},
	} {
		var p networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict([]byte("{metadata: {name: n}, spec: {podSelector: "+tc.selector+"}}"), &p); err != nil {
			t.Fatal(err)
		}
		for row, got := range map[string]string{
			"artifacts": artifactsOpen([]networkingv1.NetworkPolicy{p}, pods), "metrics": metricsOpen([]networkingv1.NetworkPolicy{p}, pods),
		} {
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: %s: got %q, want %q", tc.reason, row, got, tc.want)
			}
		}
	}
}

// networkPoliciesOf returns the NetworkPolicies among objects.
func networkPoliciesOf(t *testing.T, objects []*unstructured.Unstructured) []networkingv1.NetworkPolicy {
	t.Helper()
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
	return all
}

func TestUpstreamNetworkPoliciesAreEnough(t *testing.T) {
	t.Parallel()
	objects, err := flux.ReadObjects(config.FluxComponents())
	if err != nil {
		t.Fatal(err)
	}
	all := networkPoliciesOf(t, objects)
	if got := artifactsOpen(all, ofControllers(fluxControllers...)); len(all) == 0 || got != "" {
		t.Errorf("of %d policies: %s", len(all), got)
	}
}

func TestNotificationsReach(t *testing.T) {
	t.Parallel()
	addresses := map[string]netip.Addr{"Services": netip.MustParseAddr("10.96.0.1"), "Pods": netip.MustParseAddr("fd00::5")}
	const own = "{metadata: {name: own}, spec: {podSelector: {}, policyTypes: [Egress], egress: [%s]}}"
	for _, tc := range []struct{ reason, rules, want string }{
		{"nothing is allowed", "", ""},
		{"everything is", "{}", "own lets notification-controller reach the addresses of Pods, such as fd00::5; own lets notification-controller reach the addresses of Services"},
		{"names, and the API server", "{ports: [{port: 53, protocol: UDP}]}, {to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 443}, {port: 6443}]}", ""},
		{"another port", "{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 443}, {port: 8080}]}", "addresses of Services"},
		{"a range of ports", "{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 443, endPort: 9000}]}", "addresses of Services"},
		{"all but the ranges", "{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}, {ipBlock: {cidr: '::/0', except: ['fc00::/7']}}]}", ""},
		{"all but one of them", "{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}, {ipBlock: {cidr: '::/0'}}]}", "addresses of Pods"},
		{"Pods of other namespaces", "{to: [{namespaceSelector: {}}]}", "addresses of Pods"},
		{"Flux's own Pods", "{to: [{podSelector: {}}]}", ""},
	} {
		var p networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict([]byte(fmt.Sprintf(own, tc.rules)), &p); err != nil {
			t.Fatal(err)
		}
		got := notificationsReach([]networkingv1.NetworkPolicy{p}, addresses)
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
	if got := notificationsReach(nil, addresses); !strings.Contains(got, "no network policy limits") {
		t.Errorf("no policy at all: got %q", got)
	}
}

// TestComponentKeepsNotificationsOut checks that Flux's policies allow notifications to any
// address, and that the component restricts them.
func TestComponentKeepsNotificationsOut(t *testing.T) {
	t.Parallel()
	addresses := map[string]netip.Addr{"Services": netip.MustParseAddr("10.96.0.1"), "metadata": netip.MustParseAddr("169.254.169.254"), "public": netip.MustParseAddr("203.0.113.7")}
	if got := notificationsReach(policiesOf(t, config.FluxComponents()), addresses); !strings.Contains(got, "allow-egress lets notification-controller reach the addresses of Services") {
		t.Errorf("without the component: got %q", got)
	}
	for _, tc := range []struct {
		reason string
		ranges []string
		open   string
	}{
		{"private ranges by default", nil, "public"},
		{"ranges of the cluster's own", []string{"203.0.113.0/24"}, "Services"},
	} {
		locked, err := Export(config.FluxComponents(), Options{Tenants: true, ClusterRanges: tc.ranges})
		if err != nil {
			t.Fatal(err)
		}
		policies := policiesOf(t, locked)
		got := notificationsReach(policies, addresses)
		if strings.Count(got, " lets notification-controller reach ") != 1 || !strings.Contains(got, "addresses of "+tc.open) {
			t.Errorf("%s: got %q, want that %s alone can be reached", tc.reason, got, tc.open)
		}
		if got := artifactsOpen(policies, ofControllers(fluxControllers...)); got != "" {
			t.Errorf("%s: artifacts: %s", tc.reason, got)
		}
		if got := metricsOpen(policies, ofControllers(fluxControllers...)); got != "" {
			t.Errorf("%s: metrics: %s", tc.reason, got)
		}
	}
}

func TestBlockedRanges(t *testing.T) {
	t.Parallel()
	link := []string{"169.254.0.0/16"}
	for _, tc := range []struct {
		reason         string
		wanted, before []string
		want           ranges
		err            string
	}{
		{"what is asked for", []string{"10.96.0.0/12", "fd00::/8"}, []string{"10.0.0.0/8"}, ranges{append([]string{"10.96.0.0/12"}, link...), []string{"fd00::/8", "fe80::/10"}}, ""},
		{"what was there", nil, []string{"10.0.0.0/8", "169.254.0.0/16"}, ranges{append([]string{"10.0.0.0/8"}, link...), []string{"fe80::/10"}}, ""},
		{"the private ranges again", []string{}, []string{"203.0.113.0/24"}, ranges{[]string{"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15"}, []string{"fc00::/7", "fe80::/10"}}, ""},
		{"no range", []string{"10.96.0.1"}, nil, ranges{}, `"10.96.0.1"`},
		{"no beginning of a range", []string{"10.96.0.1/12"}, nil, ranges{}, `"10.96.0.1/12"`},
		{"everything", []string{"0.0.0.0/0"}, nil, ranges{}, `"0.0.0.0/0"`},
		{"link-local alone", link, nil, ranges{}, "only link-local addresses"},
	} {
		got, err := blockedRanges(tc.wanted, tc.before)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: got the error %v, want %s", tc.reason, err, tc.err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s (-want +got): %v\n%s", tc.reason, err, diff)
		}
	}
}

// policiesOf returns the network policies in manifests.
func policiesOf(t *testing.T, manifests []byte) (all []networkingv1.NetworkPolicy) {
	t.Helper()
	objects, err := flux.ReadObjects(manifests)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		var p networkingv1.NetworkPolicy
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// TestProgramsReach checks where the policies of a cluster that is locked down let Tenure's programs
// connect to: names, the API server, and notification-controller for the manager alone.
func TestProgramsReach(t *testing.T) {
	t.Parallel()
	yes := true
	manifests, err := Export(config.FluxComponents(), Options{Tenants: true, Proxy: &yes, Check: &yes})
	if err != nil {
		t.Fatal(err)
	}
	policies := policiesOf(t, manifests)
	const events = "app=notification-controller"
	for _, tt := range []struct {
		reason, program, to string
		port                int32
		want                bool
	}{
		{"the API server of a public cloud", "tenure-manager", "203.0.113.7", 443, true},
		{"the API server of a node", "tenure-proxy", "10.0.0.4", 6443, true},
		{"the API server of minikube", "tenure-check", "192.168.49.2", 8443, true},
		{"names", "tenure-proxy", "10.96.0.10", 53, true},
		{"the events of Flux", "tenure-manager", events, 9090, true},
		{"they are no business of the proxy", "tenure-proxy", events, 9090, false},
		{"nor of the check", "tenure-check", events, 9090, false},
		{"other Pods beside Flux", "tenure-manager", "app=source-controller", 9090, false},
		{"the cloud's metadata", "tenure-manager", "169.254.169.254", 80, false},
		{"a database of a tenant", "tenure-proxy", "10.1.2.3", 5432, false},
		{"etcd", "tenure-check", "10.0.0.4", 2379, false},
		{"Flux itself is not limited", "source-controller", "10.1.2.3", 5432, true},
	} {
		if got := connects(t, policies, labels.Set{"app": tt.program}, tt.to, tt.port); got != tt.want {
			t.Errorf("%s: %s connects to %s, port %d: %t, want %t", tt.reason, tt.program, tt.to, tt.port, got, tt.want)
		}
	}
	if policies := policiesOf(t, config.FluxComponents()); !connects(t, policies, labels.Set{"app": "tenure-manager"}, "10.1.2.3", 5432) {
		t.Error("without the lockdown, Flux's policies limit the manager")
	}
}

// connects reports whether policies let a Pod connect to an address, or to a Pod beside it that has
// a label.
func connects(t *testing.T, policies []networkingv1.NetworkPolicy, pod labels.Set, to string, port int32) bool {
	t.Helper()
	limited := false
	for _, p := range policies {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		if !selector.Matches(pod) || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			continue
		}
		limited = true
		for _, rule := range p.Spec.Egress {
			peer := len(rule.To) == 0 || slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool {
				key, value, isPod := strings.Cut(to, "=")
				if !isPod || peer.PodSelector == nil {
					return false
				}
				selector, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
				return err == nil && selector.Matches(labels.Set{key: value})
			})
			if peer && (len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == port })) {
				return true
			}
		}
	}
	return !limited
}

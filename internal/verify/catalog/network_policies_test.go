package catalog

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

// policiesOf parses the specs of NetworkPolicies, which get the names a, b and so on.
func policiesOf(t *testing.T, specs ...string) []networkingv1.NetworkPolicy {
	t.Helper()
	var all []networkingv1.NetworkPolicy
	for i, spec := range specs {
		p := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i))}}
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		all = append(all, p)
	}
	return all
}

const denyAll = "{podSelector: {}, policyTypes: [Ingress]}"

func TestReachable(t *testing.T) {
	t.Parallel()
	web := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}},
	}}}}
	from := labels.Set{"kubernetes.io/metadata.name": "billing", "tenure.dev/tenant": "billing"}
	for name, tc := range map[string]struct {
		reason   string
		policies []string
		want     reach
		by       string
	}{
		"none":           {"a Pod that no policy selects is not isolated", nil, open, ""},
		"deny":           {"a policy without rules lets nobody in", []string{denyAll}, closed, ""},
		"no types":       {"a policy without types is about ingress", []string{"{podSelector: {}}"}, closed, ""},
		"types of both":  {"a rule for egress says nothing about ingress", []string{"{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{}]}"}, closed, ""},
		"egress":         {"a policy for egress alone does not isolate", []string{"{podSelector: {}, policyTypes: [Egress]}"}, open, ""},
		"other Pods":     {"a policy for other Pods does not isolate", []string{"{podSelector: {matchLabels: {app: db}}}"}, open, ""},
		"these Pods":     {"a policy that selects the Pod isolates it", []string{"{podSelector: {matchLabels: {app: web}}}"}, closed, ""},
		"expression":     {"selectors have expressions", []string{"{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}}"}, open, ""},
		"empty rule":     {"a rule without from lets everybody in", []string{"{podSelector: {}, ingress: [{}]}"}, open, "a"},
		"empty from":     {"and so does an empty from", []string{"{podSelector: {}, ingress: [{from: []}]}"}, open, "a"},
		"union":          {"policies add up: one of them is enough", []string{denyAll, "{podSelector: {}, ingress: [{}]}"}, open, "b"},
		"not selected":   {"a policy for other Pods lets nobody in to this one", []string{denyAll, "{podSelector: {matchLabels: {app: db}}, ingress: [{}]}"}, closed, ""},
		"own Pods":       {"a podSelector alone is about the own namespace", []string{"{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"}, closed, ""},
		"all namespaces": {"an empty namespaceSelector selects every namespace", []string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}"}, open, "a"},
		"this namespace": {"one that names the other namespace", []string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: billing}}}]}]}"}, open, "a"},
		"that namespace": {"one that names another one", []string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]}]}"}, closed, ""},
		"both selectors": {"whoever owns a namespace chooses the labels of its Pods", []string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {role: monitor}}}]}]}"}, open, "a"},
		"both, closed":   {"both selectors have to match", []string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: other}}, podSelector: {}}]}]}"}, closed, ""},
		"second peer":    {"each peer counts", []string{"{podSelector: {}, ingress: [{from: [{podSelector: {}}, {namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}]}]}"}, open, "a"},
		"port":           {"a port is open as well", []string{"{podSelector: {}, ingress: [{ports: [{port: 9}]}]}"}, open, "a"},
		"protocol":       {"a rule for a protocol is about all its ports", []string{"{podSelector: {}, ingress: [{ports: [{protocol: SCTP}]}]}"}, open, "a"},
		"named port":     {"a named port of the Pod", []string{"{podSelector: {}, ingress: [{ports: [{port: http}]}]}"}, open, "a"},
		"unknown port":   {"a name that no port of the Pod has", []string{"{podSelector: {}, ingress: [{ports: [{port: metrics}]}]}"}, closed, ""},
		"other protocol": {"a named port has one protocol", []string{"{podSelector: {}, ingress: [{ports: [{port: dns}]}]}"}, closed, ""},
		"same protocol":  {"and is open with it", []string{"{podSelector: {}, ingress: [{ports: [{port: dns, protocol: UDP}]}]}"}, open, "a"},

		"every address":  {"all addresses include those of Pods", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}"}, open, "a"},
		"every IPv6":     {"also in the other family", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: '::/0'}}]}]}"}, open, "a"},
		"outside":        {"public addresses are no Pods'", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}"}, closed, ""},
		"private":        {"a whole private range is open", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}"}, open, "a"},
		"some private":   {"a part of one may be the Pods'", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.9.0.0/16}}]}]}"}, unclear, "a"},
		"known range":    {"an exception may be the range of the Pods", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.244.0.0/16]}}]}]}"}, unclear, "a"},
		"private part":   {"an exception within a private range leaves the rest", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.244.0.0/16]}}]}]}"}, unclear, "a"},
		"no private":     {"all private ranges are excepted", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16, 198.18.0.0/15]}}]}]}"}, closed, ""},
		"worst of peers": {"the worst peer counts", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.9.0.0/16}}, {namespaceSelector: {}}]}]}"}, open, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, by := reachable(policiesOf(t, tc.policies...), &web, from)
			if got != tc.want || by != tc.by {
				t.Errorf("%s: got %d by %q, want %d by %q", tc.reason, got, by, tc.want, tc.by)
			}
		})
	}
}

// The policy that Tenure's manager writes isolates a tenant from each other tenant, and what the
// tenant itself lets in is no finding.
func TestJudgeConnections(t *testing.T) {
	t.Parallel()
	namespace := func(name, tenant string) corev1.Namespace {
		set := map[string]string{corev1.LabelMetadataName: name}
		if tenant != "" {
			set[v1alpha1.LabelTenant] = tenant
		}
		return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
	}
	profile := &v1alpha1.TenancyProfile{}
	ours, err := tenancy.Desired(tenancy.Namespace{Name: "shop", Labels: map[string]string{v1alpha1.LabelTenant: "shop"}}, profile)
	if err != nil {
		t.Fatal(err)
	}
	let := func(labels map[string]string) networkingv1.NetworkPolicy {
		p := policiesOf(t, "{podSelector: {matchLabels: {app: web}}, ingress: [{}]}")[0]
		p.Labels = labels
		return p
	}
	none := policiesOf(t)
	deny := policiesOf(t, denyAll)
	byPlatform := map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	byTenant := map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "shop"}
	web := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}}
	alone := []discovery.Tenant{{Name: "shop", Namespaces: []string{"shop"}}}
	both := append(alone, discovery.Tenant{Name: "bank", Namespaces: []string{"bank"}})
	for name, tc := range map[string]struct {
		reason   string
		tenants  []discovery.Tenant
		policies []networkingv1.NetworkPolicy
		// doubts are the namespaces of policies of Cilium.
		doubts []string
		lacks  string
		want   Outcome
		says   string
	}{
		"nothing":           {"without a policy every Pod is open", both, none, nil, "", GotThrough, "no NetworkPolicy of the platform isolates them"},
		"nobody else":       {"also to tenants that may come", alone, none, nil, "", GotThrough, "namespace shop"},
		"Tenure's":          {"the manager's policy isolates", both, []networkingv1.NetworkPolicy{*ours.Isolation}, nil, "", Stopped, "tenure-isolation"},
		"Tenure's, alone":   {"also from tenants that may come", alone, []networkingv1.NetworkPolicy{*ours.Isolation}, nil, "", Stopped, "tenure-isolation"},
		"the platform's":    {"the platform lets all in to some Pods", both, []networkingv1.NetworkPolicy{*ours.Isolation, let(byPlatform)}, nil, "", GotThrough, "NetworkPolicy shop/a lets them in"},
		"the tenant's":      {"the tenant lets all in to some of its Pods", both, []networkingv1.NetworkPolicy{*ours.Isolation, let(byTenant)}, nil, "", Stopped, "tenure-isolation"},
		"its own isolation": {"the tenant isolates itself", both, deny, nil, "", Stopped, "let in no Pod"},
		"its own is open":   {"a policy of the tenant isolates nothing", both, []networkingv1.NetworkPolicy{let(byTenant)}, nil, "", GotThrough, "no NetworkPolicy of the platform"},
		"another plugin":    {"policies of a plugin may isolate", both, none, []string{"shop"}, "", NotProven, "CiliumNetworkPolicy shop/x"},
		"of the cluster":    {"policies of a plugin for the cluster may isolate", both, none, []string{""}, "", NotProven, "CiliumNetworkPolicy x"},
		"of another tenant": {"a policy in a namespace isolates no other one", both, none, []string{"bank"}, "", GotThrough, "no NetworkPolicy of the platform isolates them"},
		"incomplete":        {"policies may be missing", both, none, nil, "Kustomization a/b is not ready", NotProven, "is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &Scenario{Tenant: alone[0], tenants: tc.tenants, Victim: Victim{Namespace: VictimNamespace}, lacks: tc.lacks,
				namespaces: []corev1.Namespace{namespace("shop", "shop"), namespace("bank", "bank"), namespace("ingress", "")}}
			for _, ns := range tc.doubts {
				e.networkDoubts = append(e.networkDoubts, unenforced{*object("cilium.io/v2", "CiliumNetworkPolicy", ns, "x", nil), "Cilium does not run here"})
			}
			f := e.judgeConnections("shop", nil, tc.policies, web)
			if f.Outcome != tc.want || !strings.Contains(f.Evidence+f.Reason+f.Message, tc.says) {
				t.Errorf("%s: got %s, %q, want %s with %q", tc.reason, f.Outcome, f.Evidence+f.Reason+f.Message, tc.want, tc.says)
			}
		})
	}
}

// TestJudgeConnectionsBelow judges NetworkPolicies of the platform that let all Pods in, below the policies
// that the manager writes for the tenant or for another one.
func TestJudgeConnectionsBelow(t *testing.T) {
	t.Parallel()
	namespaces := []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{v1alpha1.LabelTenant: "team"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "bank", Labels: map[string]string{v1alpha1.LabelTenant: "bank"}}},
	}
	open := policiesOf(t, "{podSelector: {}, ingress: [{}]}")
	open[0].Labels = map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	for tenant, want := range map[string]Outcome{"team": Stopped, "bank": GotThrough} {
		policies, err := tenancy.ClusterIsolation(tenancy.ClusterPolicyKinds()[0], tenant, nil, namespaces, &v1alpha1.TenancyProfile{})
		if err != nil || len(policies) != 1 {
			t.Fatalf("%d policies: %v", len(policies), err)
		}
		if refuses(*policies[0]) {
			t.Error("a policy that the attack judges makes it not proven")
		}
		e := newFakeEnv(interceptor.Funcs{}, policies[0])
		e.namespaces = namespaces
		e.tenants = []discovery.Tenant{e.Tenant, {Name: "bank", Namespaces: []string{"bank"}}}
		above, _, err := e.clusterPolicies(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f := e.judgeConnections("team", above, open, nil)
		if f.Outcome != want || want == Stopped && !strings.Contains(f.Message, "ClusterNetworkPolicy tenure-isolation-tenant-team") {
			t.Errorf("below the policy of tenant %s: got %+v, want %s", tenant, f, want)
		}
	}
}

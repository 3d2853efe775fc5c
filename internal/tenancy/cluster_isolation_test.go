package tenancy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// modelPolicy is a policy of either kind, as an evaluator of connections between namespaces needs it. It is
// apart from the types that write policies.
type modelPolicy struct {
	name    string
	subject labels.Selector // of namespaces
	rules   []modelRule     // the first one about a peer decides
}

type modelRule struct {
	action string
	from   []labels.Selector
}

// networkModel holds the policies of a cluster.
type networkModel struct {
	cluster    []modelPolicy
	namespaced map[string][]modelPolicy // by namespace; a rule's action is Accept
}

// addCluster adds a ClusterNetworkPolicy. It fails the test if the policy has fields that the evaluator
// does not know.
func (m *networkModel) addCluster(t *testing.T, policy *unstructured.Unstructured) {
	t.Helper()
	type peer struct {
		Namespaces *metav1.LabelSelector `json:"namespaces"`
	}
	var spec struct {
		Tier     string `json:"tier"`
		Priority int    `json:"priority"`
		Subject  peer   `json:"subject"`
		Ingress  []struct {
			Name   string `json:"name"`
			Action string `json:"action"`
			From   []peer `json:"from"`
		} `json:"ingress"`
		Egress []struct{} `json:"egress"`
	}
	content, err := yaml.Marshal(policy.Object["spec"])
	if err == nil {
		err = yaml.UnmarshalStrict(content, &spec)
	}
	if err != nil || spec.Tier != "Admin" || spec.Priority != 1000 || len(spec.Egress) > 0 {
		t.Fatalf("a policy of tier %s and priority %d with %d rules for egress: %v", spec.Tier, spec.Priority, len(spec.Egress), err)
	}
	p := modelPolicy{name: policy.GetName(), subject: selector(t, spec.Subject.Namespaces)}
	for _, rule := range spec.Ingress {
		r := modelRule{action: rule.Action}
		for _, from := range rule.From {
			r.from = append(r.from, selector(t, from.Namespaces))
		}
		p.rules = append(p.rules, r)
	}
	m.cluster = append(m.cluster, p)
}

// add adds a NetworkPolicy for ingress to all Pods of its namespace.
func (m *networkModel) add(t *testing.T, policy *networkingv1.NetworkPolicy) {
	t.Helper()
	same := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: policy.Namespace}}
	p := modelPolicy{name: policy.Name}
	for _, rule := range policy.Spec.Ingress {
		r := modelRule{action: "Accept"}
		if len(rule.From) == 0 {
			r.from = append(r.from, labels.Everything())
		}
		for _, from := range rule.From {
			r.from = append(r.from, selector(t, cmp.Or(from.NamespaceSelector, same)))
		}
		p.rules = append(p.rules, r)
	}
	m.namespaced[policy.Namespace] = append(m.namespaced[policy.Namespace], p)
}

// allows reports whether the Pods of one namespace can connect to those of another one, and the
// policy that decides. All policies of the cluster have the same priority, so it fails the test if
// two of them are about the same namespace.
func (m *networkModel) allows(t *testing.T, from, to *corev1.Namespace) (bool, string) {
	t.Helper()
	decided := ""
	for _, p := range m.cluster {
		if !p.subject.Matches(labels.Set(to.Labels)) {
			continue
		}
		if decided != "" {
			t.Fatalf("policies %s and %s are about namespace %s", decided, p.name, to.Name)
		}
		decided = p.name
		if action := p.action(from); action == "Deny" || action == "Accept" {
			return action == "Accept", p.name
		}
	}
	policies := m.namespaced[to.Name]
	for _, p := range policies {
		if p.action(from) == "Accept" {
			return true, p.name
		}
	}
	return len(policies) == 0, "NetworkPolicies"
}

// action returns the action of the first rule about a namespace.
func (p *modelPolicy) action(from *corev1.Namespace) string {
	for _, rule := range p.rules {
		if slices.ContainsFunc(rule.from, func(s labels.Selector) bool { return s.Matches(labels.Set(from.Labels)) }) {
			return rule.action
		}
	}
	return ""
}

func selector(t *testing.T, from *metav1.LabelSelector) labels.Selector {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(from)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// networkFleet returns a namespace with each combination of tenants' labels, some of the platform's
// with such labels, and a second one of tenant a by each label.
func networkFleet() []corev1.Namespace {
	var fleet []corev1.Namespace
	add := func(name string, values ...string) {
		ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		for i, value := range values {
			if value != "-" {
				ns.Labels[tenantLabels[i]] = value
			}
		}
		fleet = append(fleet, ns)
	}
	values := []string{"-", "a", "b", ""}
	for i, tenure := range values {
		for j, flux := range values {
			for k, capsule := range values {
				add(fmt.Sprintf("n-%d-%d-%d", i, j, k), tenure, flux, capsule)
			}
		}
	}
	add("a-two", "a", "-", "-")
	add("a-flux", "-", "a", "-")
	add("a-capsule", "-", "-", "a")
	add("infra", "a", "-", "-")
	add("kube-system", "-", "-", "-")
	add("kube-labelled", "-", "a", "-")
	return fleet
}

// modelTenant returns the tenant of a namespace and the mode that isolates it: None for namespaces
// without a tenant.
func modelTenant(ns *corev1.Namespace, tenantMode, profileMode string) (tenant, mode string) {
	for _, label := range []string{"tenure.dev/tenant", "toolkit.fluxcd.io/tenant", "capsule.clastix.io/tenant"} {
		name, ok := ns.Labels[label]
		if !ok {
			continue
		}
		if name == "" || ns.Name == "infra" || strings.HasPrefix(ns.Name, "kube-") {
			return name, "None"
		}
		if label == "tenure.dev/tenant" && name == "a" && tenantMode != "" {
			return name, tenantMode
		}
		return name, cmp.Or(profileMode, "Tenant")
	}
	return "", "None"
}

// TestClusterIsolation evaluates the policies of a fleet for each pair of its namespaces. The
// policies that a tenant adds in its namespaces change nothing, and without
// ClusterNetworkPolicies they would.
func TestClusterIsolation(t *testing.T) {
	t.Parallel()
	all := []networkingv1.NetworkPolicyIngressRule{{}}
	own := map[string]*networkingv1.NetworkPolicySpec{"none": nil, "for all": {Ingress: all}, "for nobody": {}}
	modes := []string{"", v1alpha1.IsolationTenant, v1alpha1.IsolationNamespace, v1alpha1.IsolationNone}
	fleet := networkFleet()
	for _, tenantMode := range modes {
		for _, profileMode := range modes {
			for reason, spec := range own {
				t.Run(fmt.Sprintf("Tenant %q, TenancyProfile %q, own policies: %s", tenantMode, profileMode, reason), func(t *testing.T) {
					t.Parallel()
					m := modelOf(t, fleet, tenantMode, profileMode, spec)
					below := &networkModel{namespaced: m.namespaced}
					opened := 0
					for i := range fleet {
						for j := range fleet {
							from, to := &fleet[i], &fleet[j]
							tenant, mode := modelTenant(to, tenantMode, profileMode)
							stranger, _ := modelTenant(from, tenantMode, profileMode)
							labelled := slices.ContainsFunc(tenantLabels, func(label string) bool { _, ok := from.Labels[label]; return ok })
							want := mode == v1alpha1.IsolationNone || !labelled || from == to || mode == v1alpha1.IsolationTenant && stranger == tenant
							if reason == "for nobody" && mode == v1alpha1.IsolationNone && len(m.namespaced[to.Name]) > 0 {
								want = false // the tenant closes what the platform leaves open
							}
							got, by := m.allows(t, from, to)
							if got != want {
								t.Errorf("from %v to %v: allowed is %v by %s, want %v", from.Labels, to.Labels, got, by, want)
							}
							if without, _ := below.allows(t, from, to); without != got {
								opened++
							}
						}
					}
					isolated := profileMode != v1alpha1.IsolationNone || tenantMode != "" && tenantMode != v1alpha1.IsolationNone
					if (opened > 0) != (isolated && reason == "for all") {
						t.Errorf("without ClusterNetworkPolicies %d connections would be different", opened)
					}
				})
			}
		}
	}
}

// modelOf returns the policies of a fleet in which tenant a has a Tenant.
func modelOf(t *testing.T, fleet []corev1.Namespace, tenantMode, profileMode string, own *networkingv1.NetworkPolicySpec) *networkModel {
	t.Helper()
	profile := &v1alpha1.TenancyProfile{}
	profile.Spec.PlatformNamespaces = []string{"infra"}
	profile.Spec.Tenants.Network.Isolation = profileMode
	a := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	a.Spec.Network.Isolation = tenantMode
	tenants := map[string]*v1alpha1.Tenant{"a": a}
	m := &networkModel{namespaced: map[string][]modelPolicy{}}
	for _, tenant := range []string{"a", "b", ""} {
		policies, err := ClusterIsolation(ClusterPolicyKinds()[0], tenant, tenants[tenant], fleet, profile)
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range policies {
			m.addCluster(t, policy)
		}
	}
	for i := range fleet {
		ns := &fleet[i]
		desired, err := Desired(Namespace{Name: ns.Name, Labels: ns.Labels, Tenant: tenants[ns.Labels[v1alpha1.LabelTenant]]}, profile)
		if err != nil {
			continue // it is no tenant's
		}
		if desired.Isolation != nil {
			m.add(t, desired.Isolation)
		}
		if own != nil {
			m.add(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "own"}, Spec: *own})
		}
	}
	return m
}

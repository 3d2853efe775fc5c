package tenancy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const fullTenant = `
metadata: {name: dev-team}
spec:
  owners:
    - {kind: User, name: ann, roles: [tenure-tenant, tenure-namespace-deleter]}
    - {kind: ServiceAccount, namespace: apps, name: ci, roles: [tenure-tenant]}
    - {kind: User, name: ann, roles: [tenure-tenant]}
  namespaces: {create: [apps], podSecurity: restricted, labels: {cost: "7", tenure.dev/tenant: other, kubernetes.io/metadata.name: x}, annotations: {note: n}}
  roleBindings:
    - {role: view, subjects: [{kind: Group, name: auditors}]}
    - {role: view, subjects: [{kind: User, name: eve}]}
    - {role: view, subjects: [{kind: User, name: bob}], labels: {cost: "7", tenure.dev/managed-by: me}}
  clusterRoles: [reader]
  quotas: [{name: each, scope: Namespace, hard: {pods: 5}}, {name: all, scope: Tenant, hard: {pods: 9}}]
  limitRanges: [{limits: [{type: Container, max: {cpu: 1}, min: {memory: 1Mi}}]}]
  networkPolicies: [{podSelector: {}, egress: [{ports: [{port: 53}]}]}]
  policy: {bounds: {minInterval: 2m, maxTimeout: 3m, maxObjects: 7}}
  sync:
    - {name: app, path: ./staging, interval: 1m, git: {url: "https://git.example.com/other/app", secret: key}, decryptionSecret: age, substitute: {env: staging}}
    - {name: more, namespace: apps, anyNamespace: true, oci: {url: "oci://registry.example.com/more"}}
    - {name: elsewhere, namespace: not-ours, git: {url: "https://git.example.com/other/x"}}
`

func parseTenant(t testing.TB, text string) *v1alpha1.Tenant {
	t.Helper()
	o := &v1alpha1.Tenant{}
	if err := yaml.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTenantGolden(t *testing.T) {
	t.Parallel()
	tenant := parseTenant(t, fullTenant)
	ns := Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev-team"}, Tenant: tenant, Siblings: []string{"apps", "more"}}
	objects, err := Desired(ns, posture())
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "all that a Tenant can say", "tenant", objects.List())
	compareGolden(t, "its cluster-scoped objects", "tenant-cluster", Cluster(tenant, &v1alpha1.TenancyProfile{}, []string{"apps", "more"}))
	if diff := cmp.Diff(map[string]string{"cost": "7", "divided-quota.tenure.dev/pods": "true", "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}, objects.Labels); diff != "" {
		t.Errorf("labels that say whose a namespace is are not the Tenant's to set (-want +got):\n%s", diff)
	}
	cordoned := tenant.DeepCopy()
	cordoned.Spec.Cordoned = true
	for _, o := range Cluster(cordoned, &v1alpha1.TenancyProfile{}, nil) {
		if role, ok := o.(*rbacv1.ClusterRole); ok && len(role.Rules) != 2 {
			t.Errorf("owners of a cordoned tenant have %v", role.Rules)
		}
	}
}

// TestOwnersVerbs holds that only accounts, as which Flux applies, may patch every namespace: the right shows
// what namespaces look like.
func TestOwnersVerbs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, owners, more string
		want                 map[string][]string
	}{
		{"people create", "[{kind: User, name: ann}, {kind: Group, name: team}]", "", map[string][]string{"ann": {"create"}, "team": {"create"}}},
		{"an account applies, beside people who do not", "[{kind: User, name: ann}, {kind: ServiceAccount, namespace: apps, name: ci}]", "", map[string][]string{"ann": {"create"}, "ci": {"create", "patch"}}},
		{"nobody, while the tenant is cordoned", "[{kind: User, name: ann}, {kind: ServiceAccount, namespace: apps, name: ci}]", ", cordoned: true", map[string][]string{}},
	} {
		verbs, got := map[string][]string{}, map[string][]string{}
		for _, o := range Cluster(parseTenant(t, "{metadata: {name: x}, spec: {owners: "+tc.owners+tc.more+"}}"), &v1alpha1.TenancyProfile{}, nil) {
			switch o := o.(type) {
			case *rbacv1.ClusterRole:
				for _, rule := range o.Rules {
					if slices.Contains(rule.Resources, "namespaces") {
						verbs[o.Name] = append(verbs[o.Name], rule.Verbs...)
					}
				}
			case *rbacv1.ClusterRoleBinding:
				for _, s := range o.Subjects {
					if v := verbs[o.RoleRef.Name]; len(v) > 0 {
						got[s.Name] = append(got[s.Name], v...)
					}
				}
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// FuzzTenant holds what must be so whatever a Tenant says, also if no schema saw it.
// Maps are walked in any order, so that the fuzzer takes much for new and spends
// minutes on making it smaller: run it with -fuzzminimizetime 5x.
func FuzzTenant(f *testing.F) {
	f.Add("apps", "dev-team", "ann", "apps", "tenure-tenant", "app", "https://git.example.com/a", "k", "v")
	f.Add("kube-public", "x", "system:masters", "other", strings.Repeat("r", 253), "", "ssh://a..b", "tenure.dev/tenant", "y")
	f.Add("flux-system", "x", "", "kube-system", "a:b", "x", "oci://**", "pod-security.kubernetes.io/enforce", "privileged")
	f.Add("apps", strings.Repeat("n", 253), "ann", "apps", "tenure-tenant", "app", "https://git.example.com/a", "k", "v")
	f.Fuzz(func(t *testing.T, namespace, name, owner, elsewhere, role, syncName, url, label, value string) {
		tenant := parseTenant(t, fullTenant)
		tenant.Name = name
		spec := &tenant.Spec
		spec.Owners = append(spec.Owners,
			v1alpha1.Owner{Kind: "User", Name: owner, Roles: []string{role, role + "x"}},
			v1alpha1.Owner{Kind: "ServiceAccount", Namespace: elsewhere, Name: owner, Roles: []string{role}})
		spec.RoleBindings = append(spec.RoleBindings, v1alpha1.TenantRoleBinding{Role: role, Labels: map[string]string{label: value}, Subjects: []v1alpha1.Subject{{Kind: "Group", Name: owner}}})
		spec.ClusterRoles = append(spec.ClusterRoles, role)
		spec.Namespaces.Create = []string{namespace}
		spec.Namespaces.Labels = map[string]string{label: value}
		spec.Sync = append(spec.Sync, v1alpha1.Sync{Name: syncName + "-", Namespace: elsewhere, Git: &v1alpha1.GitSource{URL: url}})
		before := tenant.DeepCopy()
		profile := posture()
		ns := Namespace{Name: namespace, Labels: map[string]string{v1alpha1.LabelTenant: name}, Tenant: tenant, Siblings: []string{namespace}}
		cluster := Cluster(tenant, &v1alpha1.TenancyProfile{}, []string{namespace})
		distinct(t, cluster)
		for _, o := range cluster {
			if o.GetNamespace() != "" || !strings.HasPrefix(o.GetName(), "tenure:") {
				t.Errorf("%T %s/%s is not one of the cluster's", o, o.GetNamespace(), o.GetName())
			}
		}
		objects, err := Desired(ns, profile)
		if diff := cmp.Diff(before, tenant); diff != "" {
			t.Fatalf("the Tenant was changed: %s", diff)
		}
		if err != nil {
			return
		}
		if strings.HasPrefix(namespace, "kube-") || namespace == "flux-system" {
			t.Fatal("the platform's namespace became a tenant's")
		}
		again, err := Desired(ns, profile)
		if err != nil || !equality.Semantic.DeepEqual(objects.List(), again.List()) {
			t.Fatalf("asked twice, it says two things: %v", err)
		}
		if later := objects.Later; len(later) > len(objects.Sync) || slices.ContainsFunc(later, func(o client.Object) bool { return !slices.Contains(objects.Sync, o) }) {
			t.Errorf("%v is put off and not wanted at all", later)
		}
		ns.Labels = map[string]string{v1alpha1.LabelTenant: name, v1alpha1.LabelParameters: ManagedValue}
		if own, err := Desired(ns, profile); err != nil || len(own.Later) > 0 {
			t.Errorf("with the namespace's own parameters %v is put off (%v)", own.Later, err)
		}
		if objects.Labels["pod-security.kubernetes.io/enforce"] != "restricted" || objects.Labels[v1alpha1.LabelTenant] != "" {
			t.Errorf("the namespace's own labels were changed: %v", objects.Labels)
		}
		distinct(t, objects.List())
		allowed := []string{Role, "view", role, role + "x", DeleterRole}
		for _, o := range objects.List() {
			if o.GetNamespace() != namespace {
				t.Errorf("%T %s lies in namespace %q", o, o.GetName(), o.GetNamespace())
			}
			if !UpToDate(o, o) || o.GetLabels()[LabelManaged] != ManagedValue || o.GetLabels()[v1alpha1.LabelFluxTenant] != name {
				t.Errorf("%T %s is not known as the manager's: %v", o, o.GetName(), o.GetLabels())
			}
			b, ok := o.(*rbacv1.RoleBinding)
			if !ok {
				continue
			}
			if b.RoleRef.Kind != "ClusterRole" || !slices.Contains(allowed, b.RoleRef.Name) {
				t.Errorf("%s gives %v", b.Name, b.RoleRef)
			}
			for _, s := range b.Subjects {
				if b.Name == syncBinding && s.Namespace != namespace {
					t.Errorf("an account of namespace %q, which is not the tenant's, has rights", s.Namespace)
				}
			}
		}
	})
}

// distinct wants names that can be, each once.
func distinct(t *testing.T, objects []client.Object) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range objects {
		key := fmt.Sprintf("%T %s %s", o, o.GetObjectKind().GroupVersionKind().Kind, o.GetName())
		if seen[key] {
			t.Errorf("two are called %s", key)
		}
		seen[key] = true
		if len(o.GetName()) > maxName || o.GetName() == "" {
			t.Errorf("%T has a name of %d bytes", o, len(o.GetName()))
		}
	}
}

// TestReplicator: the manager may act as the accounts of a namespace only while there
// is something to replicate.
func TestReplicator(t *testing.T) {
	t.Parallel()
	profile := &v1alpha1.TenancyProfile{}
	objects := []v1alpha1.ReplicatedObjects{{Name: "a"}}
	manager := &rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "tenure-manager"}
	for name, tc := range map[string]struct {
		reason     string
		tenant     *v1alpha1.Tenant
		replicates bool
		want       bool
	}{
		"nothing":      {"most tenants", &v1alpha1.Tenant{}, false, false},
		"no Tenant":    {"a label alone", nil, true, false},
		"objects":      {"to make them", &v1alpha1.Tenant{Spec: v1alpha1.TenantSpec{Objects: objects}}, false, true},
		"left objects": {"to remove them", &v1alpha1.Tenant{Status: v1alpha1.TenantStatus{Objects: []v1alpha1.ReplicatedObject{{Name: "a"}}}}, false, true},
		"Capsule":      {"TenantResources may come", &v1alpha1.Tenant{}, true, true},
	} {
		in := Namespace{Name: "ns", Labels: map[string]string{v1alpha1.LabelTenant: "alpha"}, Tenant: tc.tenant, Manager: manager, Layer: tc.replicates}
		if tc.tenant != nil {
			tc.tenant.Name = "alpha"
		}
		desired, err := Desired(in, profile)
		if err != nil {
			t.Fatal(err)
		}
		got := false
		for _, o := range desired.List() {
			if b, ok := o.(*rbacv1.RoleBinding); ok && b.RoleRef.Name == ReplicatorRole {
				got = true
				if diff := cmp.Diff([]rbacv1.Subject{*manager}, b.Subjects); diff != "" || b.Namespace != "ns" {
					t.Errorf("%s: in namespace %s (-want +got):\n%s", name, b.Namespace, diff)
				}
			}
		}
		if got != tc.want {
			t.Errorf("%s: %s: bound %v, want %v", name, tc.reason, got, tc.want)
		}
	}
}

// TestRolesOfLayer: Tenants that the layer for Capsule wrote name its ClusterRoles, also after its removal.
func TestRolesOfLayer(t *testing.T) {
	t.Parallel()
	tenant := parseTenant(t, `{metadata: {name: oil}, spec: {
  owners: [
    {kind: User, name: alice, roles: [admin, capsule-namespace-deleter]},
    {kind: User, name: bob, roles: [tenure-namespace-deleter, capsule-namespace-deleter, capsule-namespace-provisioner]}],
  roleBindings: [{role: capsule-namespace-deleter, subjects: [{kind: User, name: joe}]}, {role: capsule-namespace-provisioner, subjects: [{kind: User, name: joe}]}]}}`)
	for layer, want := range map[bool]map[string]string{
		true: {
			"admin": "alice", "capsule-namespace-deleter": "alice bob joe", "tenure-namespace-deleter": "bob", "capsule-namespace-provisioner": "bob joe",
		},
		false: {"admin": "alice", "tenure-namespace-deleter": "alice bob joe"},
	} {
		objects, err := Desired(Namespace{Name: "oil-a", Labels: map[string]string{v1alpha1.LabelTenant: "oil"}, Tenant: tenant, Siblings: []string{"oil-a"}, Layer: layer}, posture())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, o := range objects.Bindings {
			b := o.(*rbacv1.RoleBinding)
			for _, s := range b.Subjects {
				got[b.RoleRef.Name] = strings.TrimSpace(got[b.RoleRef.Name] + " " + s.Name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with the layer: %t (-want +got):\n%s", layer, diff)
		}
	}
}

// TestAccountsOfEachNamespace gives a role to the accounts with a name in each of the tenant's
// namespaces, each in its own.
func TestAccountsOfEachNamespace(t *testing.T) {
	t.Parallel()
	tenant := parseTenant(t, `{metadata: {name: oil}, spec: {roleBindings: [{role: view, subjects: [{kind: ServiceAccount, name: builder}]}]}}`)
	for _, name := range []string{"oil-a", "oil-b"} {
		objects, err := Desired(Namespace{Name: name, Labels: map[string]string{v1alpha1.LabelTenant: "oil"}, Tenant: tenant, Siblings: []string{"oil-a", "oil-b"}}, posture())
		if err != nil {
			t.Fatal(err)
		}
		var got []rbacv1.Subject
		for _, o := range objects.Bindings {
			if b, ok := o.(*rbacv1.RoleBinding); ok && b.RoleRef.Name == "view" {
				got = append(got, b.Subjects...)
			}
		}
		if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Namespace: name, Name: "builder"}}, got); diff != "" {
			t.Errorf("subjects in %s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCordonedNamespace cordons one namespace by its label.
func TestCordonedNamespace(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"true": true, "false": false, "": false} {
		objects, err := Desired(Namespace{Name: "oil-a", Labels: map[string]string{v1alpha1.LabelTenant: "oil", v1alpha1.LabelCapsuleCordoned: value}, Tenant: parseTenant(t, `{metadata: {name: oil}}`)}, posture())
		if err != nil {
			t.Fatal(err)
		}
		if got := objects.Parameters.Spec.Cordoned; got != want {
			t.Errorf("with the label %q: cordoned is %t, want %t", value, got, want)
		}
	}
}

const capsuleNamed = `
metadata: {name: oil, annotations: {tenure.dev/object-names: Capsule}}
spec:
  owners:
    - {kind: User, name: alice, roles: [admin]}
    - {kind: User, name: bob, roles: [admin]}
    - {kind: ServiceAccount, namespace: oil-ci, name: robot, roles: [admin]}
  roleBindings:
    - {role: admin, subjects: [{kind: User, name: alice}], labels: {cost: "7"}}
    - {role: view, subjects: [{kind: User, name: carol}, {kind: Group, name: staff}]}
  quotas: [{name: capsule-0, scope: Namespace, hard: {pods: "1"}}]
  limitRanges: [{limits: [{type: Pod}]}]
  networkPolicies: [{podSelector: {}}, {podSelector: {}}]
`

// The names are those by which clients of Capsule v0.14 look for the objects.
func TestCapsuleNames(t *testing.T) {
	tenant := &v1alpha1.Tenant{}
	if err := yaml.Unmarshal([]byte(capsuleNamed), tenant); err != nil {
		t.Fatal(err)
	}
	ns := Namespace{Name: "oil-dev", Tenant: tenant}
	var got []string
	for _, o := range append(bounds(ns), bindings(ns)...) {
		what := o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetName()
		if b, ok := o.(*rbacv1.RoleBinding); ok {
			what += ": " + b.RoleRef.Name + b.Labels["cost"]
			for _, s := range b.Subjects {
				what += " " + s.Name
			}
			if b.Labels["projectcapsule.dev/tenant"] != "oil" || b.Labels["projectcapsule.dev/managed-by"] != "controller" {
				t.Errorf("RoleBinding %s has the labels %v", b.Name, b.Labels)
			}
		}
		got = append(got, what)
	}
	if diff := cmp.Diff([]string{
		"ResourceQuota capsule-oil-0", "LimitRange capsule-oil-0", "NetworkPolicy capsule-oil-0", "NetworkPolicy capsule-oil-1",
		"RoleBinding capsule:managed:b748d0d6894ca4d6: admin bob",
		"RoleBinding capsule:managed:f7e75171a343ef6d: admin robot",
		"RoleBinding capsule:managed:f93a4d3523f699fb: admin7 alice",
		"RoleBinding capsule:managed:20ca3f9cd1c566ec: view carol staff",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tenant.Annotations = nil
	for _, o := range append(bounds(ns), bindings(ns)...) {
		if !strings.HasPrefix(o.GetName(), "tenure") {
			t.Errorf("%s has a name of Capsule's, and nobody asked for that", o.GetName())
		}
	}
}

// TestWholeNumbers names the amounts of a Tenant's quotas that the distribution would round down without a word.
func TestWholeNumbers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, scope, name, amount, want string }{
		{"Pods are counted", "Tenant", "pods", "1500m", "spec.quotas[0].hard has 1500m of pods, which are counted in whole numbers, and the tenant gets 1"},
		{"so are objects of any kind", "Tenant", "count/deployments.apps", "0.5", "has 500m of count/deployments.apps, which are counted in whole numbers, and the tenant gets 0"},
		{"and devices", "Tenant", "requests.nvidia.com/gpu", "2.5", "the tenant gets 2"},
		{"thousandths that are a whole number", "Tenant", "pods", "2000m", ""},
		{"a large whole number", "Tenant", "pods", "1.5k", ""},
		{"more than fits into 64 bits", "Tenant", "pods", "9e30", ""},
		{"half a processor", "Tenant", "requests.cpu", "500m", ""},
		{"a tenth of a GiB is no whole number of bytes", "Tenant", "requests.memory", "0.1Gi", ""},
		{"nor of storage", "Tenant", "gold.storageclass.storage.k8s.io/requests.storage", "0.1Gi", ""},
		{"the API server refuses it", "Namespace", "pods", "1500m", ""},
	} {
		tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
		tenant.Spec.Quotas = []v1alpha1.TenantQuota{{Name: "x", Scope: tc.scope, Hard: v1alpha1.Quantities{corev1.ResourceName(tc.name): resource.MustParse(tc.amount)}}}
		_, _, err := Metadata(tenant)
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
		}
	}
}

// TestFieldOf finds the field of a Tenant for an object in a namespace, also with the names that Capsule gives.
func TestFieldOf(t *testing.T) {
	t.Parallel()
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	tenant.Spec.LimitRanges, tenant.Spec.NetworkPolicies = make([]v1alpha1.LimitRange, 2), make([]networkingv1.NetworkPolicySpec, 1)
	tenant.Spec.Quotas = []v1alpha1.TenantQuota{{Name: "capsule-0"}, {Name: "capsule-2"}}
	named := tenant.DeepCopy()
	named.Annotations = map[string]string{AnnotationNames: v1alpha1.NamesCapsule}
	called := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	for _, tc := range []struct {
		reason string
		tenant *v1alpha1.Tenant
		object client.Object
		want   string
	}{
		{"a limit range", tenant, &corev1.LimitRange{ObjectMeta: called("tenure-1")}, "spec.limitRanges[1]"},
		{"one that the Tenant does not have", tenant, &corev1.LimitRange{ObjectMeta: called("tenure-2")}, ""},
		{"a network policy", tenant, &networkingv1.NetworkPolicy{ObjectMeta: called("tenure-0")}, "spec.networkPolicies[0]"},
		{"the profile's network policy", tenant, &networkingv1.NetworkPolicy{ObjectMeta: called("tenure-isolation")}, ""},
		{"a quota", tenant, &corev1.ResourceQuota{ObjectMeta: called("tenure-capsule-2")}, "spec.quotas[1]"},
		{"the profile's quota", tenant, &corev1.ResourceQuota{ObjectMeta: called("tenure")}, ""},
		{"a limit range with Capsule's name", named, &corev1.LimitRange{ObjectMeta: called("capsule-team-1")}, "spec.limitRanges[1]"},
		{"an account", tenant, &corev1.ServiceAccount{ObjectMeta: called("team")}, ""},
		{"no Tenant", nil, &corev1.LimitRange{ObjectMeta: called("tenure-0")}, ""},
	} {
		if got := FieldOf(tc.tenant, tc.object); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

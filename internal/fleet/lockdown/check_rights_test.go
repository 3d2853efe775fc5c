package lockdown

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestUnlabelled(t *testing.T) {
	t.Parallel()
	namespaces := []*unstructured.Unstructured{
		parsed(t, "{kind: Namespace, metadata: {name: apps, labels: {tenure.dev/tenant: team}}}"),
		parsed(t, "{kind: Namespace, metadata: {name: home, labels: {toolkit.fluxcd.io/tenant: team}}}"),
		parsed(t, "{kind: Namespace, metadata: {name: sites, labels: {toolkit.fluxcd.io/role: tenant}}}"),
		parsed(t, "{kind: Namespace, metadata: {name: tools}}"),
	}
	if plain := unlabelled(namespaces, map[string]string{"apps": "team", "home": "team", "sites": "sites"}); !slices.Equal(plain, []string{"sites"}) {
		t.Errorf("without a tenant's label: got %v, want sites", plain)
	}
}

// The roles of TestRightsOfTenants. Cluster-admin, admin, edit and view are as in Kubernetes, shortened.
const testRoles = `
{kind: ClusterRole, metadata: {name: cluster-admin}, rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}, {nonResourceURLs: ['*'], verbs: ['*']}]}
{kind: ClusterRole, metadata: {name: admin}, rules: [{apiGroups: [''], resources: [pods, secrets], verbs: [get, list, create]}, {apiGroups: [''], resources: [serviceaccounts], verbs: [impersonate]}, {apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]}]}
{kind: ClusterRole, metadata: {name: view}, rules: [{apiGroups: [''], resources: [pods, configmaps], verbs: [get, list, watch]}]}
{kind: ClusterRole, metadata: {name: tenure-tenant}, rules: [{apiGroups: ['', rbac.authorization.k8s.io], resources: [pods, secrets, roles, rolebindings], verbs: [get, create, delete]}]}
{kind: ClusterRole, metadata: {name: binds}, rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [admin], verbs: [bind]}]}
{kind: ClusterRole, metadata: {name: classes}, rules: [{apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [get, create, delete]}, {apiGroups: [''], resources: [nodes, namespaces, persistentvolumes], verbs: [get, list, watch]}]}
{kind: ClusterRole, metadata: {name: volumes}, rules: [{apiGroups: [''], resources: [persistentvolumes], verbs: [get, create]}]}
{kind: ClusterRole, metadata: {name: proxies}, rules: [{apiGroups: [''], resources: [nodes/proxy], verbs: [get]}]}
{kind: ClusterRole, metadata: {name: person}, rules: [{apiGroups: [''], resources: [users, groups], resourceNames: [root], verbs: [impersonate]}]}
{kind: ClusterRole, metadata: {name: subresources}, rules: [{apiGroups: [''], resources: ['*/exec'], verbs: [create]}]}
{kind: ClusterRole, metadata: {name: unknown}, rules: [{apiGroups: [acme.io], resources: [widgets], verbs: ['*']}]}
{kind: ClusterRole, metadata: {name: reviews}, rules: [{apiGroups: [authorization.k8s.io], resources: [localsubjectaccessreviews], verbs: [create]}]}
{kind: ClusterRole, metadata: {name: leader}, rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}, {apiGroups: [''], resources: [events], verbs: [create, patch]}]}
{kind: ClusterRole, metadata: {name: discovery}, rules: [{nonResourceURLs: [/healthz], verbs: [get]}]}
{kind: ClusterRole, metadata: {name: many}, rules: [{apiGroups: [''], resources: [pods, secrets, configmaps, events, services], verbs: [get]}]}
{kind: Role, metadata: {name: admin, namespace: apps}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}
{kind: Role, metadata: {name: tokens, namespace: apps}, rules: [{apiGroups: [''], resources: [serviceaccounts/token], verbs: ['*']}]}
{kind: Role, metadata: {name: one-secret, namespace: tools}, rules: [{apiGroups: [''], resources: [secrets], resourceNames: [registry], verbs: [get]}]}
{kind: Namespace, metadata: {name: apps, labels: {tenure.dev/tenant: team}}}
{kind: Namespace, metadata: {name: home, labels: {toolkit.fluxcd.io/tenant: team}}}
{kind: Namespace, metadata: {name: other, labels: {tenure.dev/tenant: other}}}
{kind: Namespace, metadata: {name: tools}}
{kind: Namespace, metadata: {name: sites, labels: {toolkit.fluxcd.io/role: tenant}}}
`

func TestRightsOfTenants(t *testing.T) {
	t.Parallel()
	const (
		account = "{kind: ServiceAccount, namespace: apps, name: deployer}"
		ann     = "{kind: User, name: ann}"
		cluster = "ClusterRole, name: "
	)
	for _, tc := range []struct{ reason, namespace, role, subject, want string }{
		{"all rights", "apps", cluster + "cluster-admin", account, "RoleBinding apps/x gives apps/deployer the role cluster-admin, which allows to act as other accounts of the namespace: give it tenure-tenant"},
		{"tokens and impersonation", "home", cluster + "admin", account, "the role admin, which allows to act as other accounts"},
		{"the account as a user", "apps", cluster + "admin", "{kind: User, name: 'system:serviceaccount:apps:deployer'}", "system:serviceaccount:apps:deployer"},
		{"all accounts of a namespace", "home", cluster + "admin", "{kind: Group, name: 'system:serviceaccounts:apps'}", "system:serviceaccounts:apps"},
		{"a role of the namespace with tokens", "apps", "Role, name: tokens", account, "the role tokens, which allows to act"},
		{"a role that may bind others", "apps", cluster + "binds", account, "the role binds, which allows to act"},
		{"a role of the namespace that has the name of another", "apps", "Role, name: admin", account, ""},
		{"the role of a tenant", "apps", cluster + "tenure-tenant", account, ""},
		{"a role that reads", "apps", cluster + "view", account, ""},
		{"a role that does not exist", "apps", cluster + "gone", account, ""},
		{"an account of the platform", "apps", cluster + "admin", "{kind: ServiceAccount, namespace: tools, name: operator}", ""},
		{"a person in the own namespace", "apps", cluster + "admin", ann, ""},
		{"a namespace that discovery found", "sites", cluster + "admin", "{kind: ServiceAccount, namespace: sites, name: flux}", "RoleBinding sites/x gives sites/flux the role admin"},

		{"reading in another tenant's namespace", "other", cluster + "view", account, "RoleBinding other/x gives apps/deployer the role view in a namespace of tenant other: get, list, watch configmaps; get, list, watch pods"},
		{"an owner in another tenant's namespace", "other", cluster + "view", ann, "gives ann of tenant team the role view in a namespace of tenant other"},
		{"everybody in a tenant's namespace", "apps", cluster + "view", "{kind: Group, name: 'system:authenticated'}", "gives system:authenticated, which every tenant is, the role view in a namespace of tenant team"},
		{"reviews in another tenant's namespace", "other", cluster + "reviews", account, ""},
		{"a person of nobody's", "other", cluster + "admin", "{kind: User, name: root}", ""},

		{"Secrets of the platform", "tools", cluster + "tenure-tenant", account, "RoleBinding tools/x gives apps/deployer the role tenure-tenant in a namespace of the platform: create, delete pods; create, delete rolebindings.rbac.authorization.k8s.io; create, delete roles.rbac.authorization.k8s.io; and 1 more"},
		{"one Secret of the platform", "tools", "Role, name: one-secret", ann, "the role one-secret in a namespace of the platform: get secrets registry"},
		{"reading in the platform's namespace", "tools", cluster + "view", account, ""},
		{"an election in the platform's namespace", "tools", cluster + "leader", account, ""},
		{"what everybody may do", "tools", cluster + "view", "{kind: User, name: 'system:anonymous'}", ""},

		{"everything", "", cluster + "cluster-admin", account, "ClusterRoleBinding x gives apps/deployer the role cluster-admin in the whole cluster: every verb on everything"},
		{"reading everywhere", "", cluster + "view", account, "in the whole cluster: get, list, watch configmaps; get, list, watch pods"},
		{"everybody everywhere", "", cluster + "view", "{kind: Group, name: 'system:serviceaccounts'}", "ClusterRoleBinding x gives system:serviceaccounts, which every tenant is, the role view in the whole cluster"},
		{"the user of older releases of Flux", "", cluster + "view", "{kind: User, name: 'gotk:apps:reconciler'}", "gives gotk:apps:reconciler of tenant team the role view"},
		{"an account of the platform that delivers for a tenant", "", cluster + "cluster-admin", "{kind: ServiceAccount, namespace: tools, name: deliverer}", "gives tools/deliverer of tenant other the role cluster-admin"},
		{"classes, and reading nodes", "", cluster + "classes", account, ""},
		{"volumes", "", cluster + "volumes", account, "in the whole cluster: create persistentvolumes"},
		{"kubelets", "", cluster + "proxies", account, "get nodes/proxy"},
		{"people", "", cluster + "person", account, "impersonate groups root; impersonate users root"},
		{"all subresources", "", cluster + "subresources", account, "create */exec"},
		{"a kind that is not served", "", cluster + "unknown", account, ""},
		{"a review", "", cluster + "reviews", account, ""},
		{"no objects", "", cluster + "discovery", "{kind: Group, name: 'system:authenticated'}", ""},
		{"many rights", "", cluster + "many", account, "get configmaps; get events; get pods; and 2 more rights"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			metadata, kind := "{name: x}", "ClusterRoleBinding"
			if tc.namespace != "" {
				metadata, kind = "{namespace: "+tc.namespace+", name: x}", "RoleBinding"
			}
			binding := "{kind: " + kind + ", metadata: " + metadata + ", roleRef: {apiGroup: rbac.authorization.k8s.io, kind: " + tc.role + "}, subjects: [" + tc.subject + "]}"
			c := testRights(t, binding)
			wrong, err := c.rightsOfTenants(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(wrong, "; ")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			// The manager binds what its own rules allow.
			managed := testRights(t, strings.Replace(binding, "name: x}", "name: x, labels: {tenure.dev/managed-by: manager}}", 1))
			if wrong, err := managed.rightsOfTenants(t.Context()); err != nil || len(wrong) > 0 {
				t.Errorf("a binding of the manager: got %v, %v", wrong, err)
			}
		})
	}
}

// TestRightsOfOwners checks that the owners in Tenants count where nobody looked for tenants.
func TestRightsOfOwners(t *testing.T) {
	t.Parallel()
	c := testRights(t, `{kind: ClusterRoleBinding, metadata: {name: x}, roleRef: {kind: ClusterRole, name: view}, subjects: [{kind: Group, name: devs}, {kind: User, name: ann}]}
{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: team}, spec: {owners: [{kind: Group, name: devs}]}}`)
	c.TenantNamespaces, c.Identities = nil, nil
	wrong, err := c.rightsOfTenants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(wrong) != 1 || !strings.HasPrefix(wrong[0], "ClusterRoleBinding x gives devs of tenant team the role view in the whole cluster") {
		t.Errorf("got %q", wrong)
	}
}

// testRights returns a cluster with the roles and namespaces of the tests, and these objects.
func testRights(t *testing.T, objects string) Cluster {
	t.Helper()
	var all []client.Object
	for line := range strings.SplitSeq(strings.TrimSpace(testRoles+objects), "\n") {
		o := parsed(t, line)
		if o.GetAPIVersion() == "" {
			o.SetAPIVersion("v1")
			if o.GetKind() != "Namespace" {
				o.SetAPIVersion(rbacv1.SchemeGroupVersion.String())
			}
		}
		all = append(all, o)
	}
	served := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
	for _, group := range []struct {
		version                   string
		namespaced, clusterScoped []string
	}{
		{"v1", []string{"pods", "pods/exec", "secrets", "configmaps", "events", "services", "serviceaccounts"}, []string{"nodes", "namespaces", "persistentvolumes"}},
		{"rbac.authorization.k8s.io/v1", []string{"roles", "rolebindings"}, []string{"clusterroles"}},
		{"scheduling.k8s.io/v1", nil, []string{"priorityclasses"}},
		{"authorization.k8s.io/v1", []string{"localsubjectaccessreviews"}, nil},
	} {
		list := &metav1.APIResourceList{GroupVersion: group.version}
		for _, name := range group.namespaced {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Namespaced: true})
		}
		for _, name := range group.clusterScoped {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		served.Resources = append(served.Resources, list)
	}
	return Cluster{
		Client: fake.NewClientBuilder().WithObjects(all...).Build(), Discovery: served, Namespace: "flux-system",
		TenantNamespaces: map[string]string{"apps": "team", "home": "team", "other": "other", "sites": "sites"},
		Identities: []Identity{
			{"team", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "ann"}},
			{"other", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "tools", Name: "deliverer"}},
		},
	}
}

package capsule

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func tenantOwner(name, kind, owner string, labels map[string]string, roles ...string) v1beta2.TenantOwner {
	return v1beta2.TenantOwner{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       v1beta2.TenantOwnerSpec{Identity: v1beta2.Identity{Kind: kind, Name: owner}, ClusterRoles: roles},
	}
}

// TestTenantOwners translates the owners of a Tenant with those that it selects.
func TestTenantOwners(t *testing.T) {
	t.Parallel()
	devops, common := map[string]string{"team": "devops"}, map[string]string{"customer": "x", "team": "devops"}
	owners := []v1beta2.TenantOwner{
		tenantOwner("b", "Group", "devops", devops, "edit"),
		tenantOwner("a", "ServiceAccount", "system:serviceaccount:ci:deployer", common, "view", "admin"),
		tenantOwner("other", "User", "mallory", map[string]string{"team": "sales"}, "admin"),
		tenantOwner("labelled", "User", "bob", map[string]string{"projectcapsule.dev/tenant": "wind"}, "edit"),
		tenantOwner("unnamed", "User", "eve", map[string]string{"projectcapsule.dev/tenant": ""}, "edit"),
	}
	for name, tc := range map[string]struct {
		reason, tenant string
		want           []v1alpha1.Owner
		refused        string
	}{
		"selected once": {
			"two selectors may select the same owner, which has the roles of both lists",
			`spec: {owners: [{kind: ServiceAccount, name: "system:serviceaccount:ci:deployer"}], permissions: {matchOwners: [{matchLabels: {customer: x}}, {matchLabels: {team: devops}}]}}`,
			[]v1alpha1.Owner{{Kind: "ServiceAccount", Namespace: "ci", Name: "deployer", Roles: []string{"admin", "capsule-namespace-deleter", "view"}}, {Kind: "Group", Name: "devops", Roles: []string{"edit"}}}, "",
		},
		"none": {"without selectors nobody is added", `spec: {owners: [{kind: User, name: ann, clusterRoles: [view]}], permissions: {allowOwnerPromotion: false}}`,
			[]v1alpha1.Owner{{Kind: "User", Name: "ann", Roles: []string{"view"}}}, ""},
		"by the label": {"the label of a TenantOwner names the Tenant", `{metadata: {name: wind}, spec: {owners: [{kind: User, name: ann, clusterRoles: [view]}]}}`,
			[]v1alpha1.Owner{{Kind: "User", Name: "ann", Roles: []string{"view"}}, {Kind: "User", Name: "bob", Roles: []string{"edit"}}}, ""},
		"another's label": {"it names another Tenant", `{metadata: {name: gas}, spec: {owners: [{kind: User, name: ann, clusterRoles: [view]}]}}`,
			[]v1alpha1.Owner{{Kind: "User", Name: "ann", Roles: []string{"view"}}}, ""},
		"invalid selector": {"a selector that is not valid must not select everybody", `spec: {permissions: {matchOwners: [{matchExpressions: [{key: a, operator: Wrong}]}]}}`, nil, "spec.permissions.matchOwners[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Translate(Input{Tenant: parse(t, tc.tenant), Owners: owners})
			if diff := cmp.Diff(tc.want, got.Spec.Owners); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			refused := ""
			for _, n := range got.Refusals() {
				refused += n.Field
			}
			if refused != tc.refused {
				t.Errorf("%s: refused %q, want %q", tc.reason, refused, tc.refused)
			}
		})
	}
	system := tenantOwner("s", "Group", "system:masters", devops)
	if err := CheckOwner(&system); err == nil {
		t.Error("a group of Kubernetes is no owner")
	}
	refused := Translate(Input{Tenant: parse(t, `spec: {permissions: {matchOwners: [{matchLabels: {team: devops}}]}}`), Owners: []v1beta2.TenantOwner{system}})
	if len(refused.Refusals()) != 1 || len(refused.Spec.Owners) != 0 {
		t.Errorf("a group of Kubernetes: %v, owners %v", refused.Refusals(), refused.Spec.Owners)
	}
}

// TestOwnerMetadata gives an owner's RoleBindings labels without other rights.
func TestOwnerMetadata(t *testing.T) {
	t.Parallel()
	got := Translate(Input{Tenant: parse(t, `spec: {owners: [{kind: User, name: ann, clusterRoles: [view, cluster-admin], labels: {a: b}, annotations: {c: d}}], additionalRoleBindings: [{clusterRoleName: view, subjects: [{kind: ServiceAccount, name: default}]}]}`)})
	want := []v1alpha1.TenantRoleBinding{
		{Role: "view", Subjects: []v1alpha1.Subject{{Kind: "User", Name: "ann"}}, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		{Role: "tenure-tenant", Subjects: []v1alpha1.Subject{{Kind: "User", Name: "ann"}}, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		{Role: "view", Subjects: []v1alpha1.Subject{{Kind: "ServiceAccount", Name: "default"}}},
	}
	if diff := cmp.Diff(want, got.Spec.RoleBindings); diff != "" {
		t.Errorf("RoleBindings (-want +got):\n%s", diff)
	}
}

// TestUsers lists the users of the configuration and the TenantOwners that aggregate.
func TestUsers(t *testing.T) {
	t.Parallel()
	private := tenantOwner("p", "User", "private", nil)
	private.Spec.Aggregate = new(false)
	c := configuration(t, `spec: {userGroups: [g], userNames: [ann], users: [{kind: User, name: ann}]}`)
	got := Users(c, []v1beta2.TenantOwner{tenantOwner("o", "Group", "devops", nil), private})
	want := []v1beta2.Identity{{Kind: "Group", Name: "devops"}, {Kind: "Group", Name: "g"}, {Kind: "User", Name: "ann"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

// TestMetadataVariable puts the tenant's name into metadata.
func TestMetadataVariable(t *testing.T) {
	t.Parallel()
	got := Translate(Input{Tenant: parse(t, `spec: {namespaceOptions: {additionalMetadata: {labels: {a: "x-{{tenant.name}}"}, annotations: {b: "{{ tenant.name }}"}}}}`)})
	if len(got.Refusals()) > 0 || got.Spec.Namespaces.Labels["a"] != "x-oil" || got.Spec.Namespaces.Annotations["b"] != "oil" {
		t.Errorf("refused %v; labels %v, annotations %v", got.Refusals(), got.Spec.Namespaces.Labels, got.Spec.Namespaces.Annotations)
	}
}

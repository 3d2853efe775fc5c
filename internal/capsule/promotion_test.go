package capsule

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPromotions makes promoted service accounts owners, where both the CapsuleConfiguration and the
// Tenant allow it.
func TestPromotions(t *testing.T) {
	t.Parallel()
	alice := v1alpha1.Owner{Kind: "User", Name: "alice", Roles: []string{"admin"}}
	robot := v1alpha1.Owner{Kind: "ServiceAccount", Namespace: "oil-a", Name: "robot", Roles: []string{RoleProvisioner, RoleDeleter}}
	viewer := v1alpha1.Owner{Kind: "ServiceAccount", Namespace: "oil-a", Name: "robot", Roles: []string{"view", "tenure-tenant"}}
	given := v1alpha1.Owner{Kind: "ServiceAccount", Namespace: "oil-a", Name: "given", Roles: []string{"view"}}
	for _, tc := range []struct {
		reason, configuration, permissions string
		want                               []v1alpha1.Owner
	}{
		{"allowed", `{allowServiceAccountPromotion: true}`, `{}`, []v1alpha1.Owner{alice, given, robot}},
		{"allowed by the Tenant too", `{allowServiceAccountPromotion: true}`, `{allowOwnerPromotion: true}`, []v1alpha1.Owner{alice, given, robot}},
		{"other roles", `{allowServiceAccountPromotion: true, rbac: {promotionClusterRoles: [view, cluster-admin]}}`, `{}`, []v1alpha1.Owner{alice, given, viewer}},
		{"not by the CapsuleConfiguration", `{}`, `{allowOwnerPromotion: true}`, []v1alpha1.Owner{alice, given}},
		{"not by the Tenant", `{allowServiceAccountPromotion: true}`, `{allowOwnerPromotion: false}`, []v1alpha1.Owner{alice, given}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			tenant := parse(t, `spec: {permissions: `+tc.permissions+`, owners: [{kind: User, name: alice, clusterRoles: [admin]}, {kind: ServiceAccount, name: "system:serviceaccount:oil-a:given", clusterRoles: [view]}]}`)
			got := Translate(Input{Tenant: tenant, Configuration: configuration(t, "spec: "+tc.configuration), Promoted: []Account{{Namespace: "oil-a", Name: "given"}, {Namespace: "oil-a", Name: "robot"}}})
			if diff := cmp.Diff(tc.want, got.Spec.Owners); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
	if got := Translate(Input{Tenant: parse(t, `{}`), Promoted: []Account{{Namespace: "oil-a", Name: "robot"}}}); len(got.Spec.Owners) > 0 {
		t.Errorf("without a CapsuleConfiguration, the owners are %v", got.Spec.Owners)
	}
}

// TestEntitlements checks the role bindings of the promotions and bindings of rules: a rule that
// selects namespaces is for their accounts, in these namespaces.
func TestEntitlements(t *testing.T) {
	t.Parallel()
	tenant := parse(t, `spec: {owners: [{kind: User, name: alice, clusterRoles: [admin]}], rules: [
		{permissions: {bindings: [{clusterRoleName: view, subjects: [{kind: User, name: bob}]}], promotions: [{clusterRoles: [view]}, {clusterRoles: [edit], selector: {matchLabels: {super: "yes"}}}]}},
		{namespaceSelector: {matchLabels: {env: prod}}, permissions: {bindings: [{clusterRoleName: view, subjects: [{kind: User, name: eve}]}], promotions: [{clusterRoles: [cluster-admin]}]}}]}`)
	prod := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	accounts := []Account{
		{Namespace: "oil-dev", Name: "a", Labels: map[string]string{"super": "yes"}, NamespaceLabels: map[string]string{"env": "dev"}},
		{Namespace: "oil-prod", Name: "b", NamespaceLabels: map[string]string{"env": "prod"}},
	}
	a := v1alpha1.Subject{Kind: "ServiceAccount", Namespace: "oil-dev", Name: "a"}
	b := v1alpha1.Subject{Kind: "ServiceAccount", Namespace: "oil-prod", Name: "b"}
	bindings := []v1alpha1.TenantRoleBinding{
		{Role: "view", Subjects: []v1alpha1.Subject{{Kind: "User", Name: "bob"}}},
		{Role: "view", Subjects: []v1alpha1.Subject{{Kind: "User", Name: "eve"}}, NamespaceSelector: prod},
	}
	got := Translate(Input{Tenant: tenant, Configuration: configuration(t, "spec: {allowServiceAccountPromotion: true}"), Entitled: accounts})
	want := append(slices.Clone(bindings),
		v1alpha1.TenantRoleBinding{Role: "view", Subjects: []v1alpha1.Subject{a, b}},
		v1alpha1.TenantRoleBinding{Role: "edit", Subjects: []v1alpha1.Subject{a}},
		v1alpha1.TenantRoleBinding{Role: "tenure-tenant", Subjects: []v1alpha1.Subject{b}, NamespaceSelector: prod})
	if diff := cmp.Diff(want, got.Spec.RoleBindings); diff != "" {
		t.Errorf("role bindings (-want +got):\n%s", diff)
	}
	if refusals := got.Refusals(); len(refusals) > 0 {
		t.Errorf("refused: %v", refusals)
	}
	got = Translate(Input{Tenant: tenant, Configuration: configuration(t, "spec: {}"), Entitled: accounts})
	if diff := cmp.Diff(bindings, got.Spec.RoleBindings); diff != "" {
		t.Errorf("role bindings without promotion (-want +got):\n%s", diff)
	}
	wrong := parse(t, `spec: {rules: [{permissions: {promotions: [{clusterRoles: [view], selector: {matchExpressions: [{key: a, operator: Near}]}}]}}]}`)
	if got := Translate(Input{Tenant: wrong}).Refusals(); len(got) != 1 || got[0].Field != "spec.rules[0].permissions.promotions[0].selector" {
		t.Errorf("an invalid selector is refused as %v", got)
	}
}

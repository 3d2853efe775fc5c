package capsule

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// TestPromotions makes promoted service accounts owners, where both the CapsuleConfiguration and the
// Tenant allow it.
func TestPromotions(t *testing.T) {
	t.Parallel()
	alice := v1alpha1.Owner{Kind: "User", Name: "alice", Roles: []string{"admin"}}
	robot := v1alpha1.Owner{Kind: "ServiceAccount", Namespace: "oil-a", Name: "robot", Roles: []string{RoleProvisioner, RoleDeleter}}
	given := v1alpha1.Owner{Kind: "ServiceAccount", Namespace: "oil-a", Name: "given", Roles: []string{"view"}}
	for _, tc := range []struct {
		reason, configuration, permissions string
		want                               []v1alpha1.Owner
	}{
		{"allowed", `{allowServiceAccountPromotion: true}`, `{}`, []v1alpha1.Owner{alice, given, robot}},
		{"allowed by the Tenant too", `{allowServiceAccountPromotion: true}`, `{allowOwnerPromotion: true}`, []v1alpha1.Owner{alice, given, robot}},
		{"not by the CapsuleConfiguration", `{}`, `{allowOwnerPromotion: true}`, []v1alpha1.Owner{alice, given}},
		{"not by the Tenant", `{allowServiceAccountPromotion: true}`, `{allowOwnerPromotion: false}`, []v1alpha1.Owner{alice, given}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			tenant := parse(t, `spec: {permissions: `+tc.permissions+`, owners: [{kind: User, name: alice, clusterRoles: [admin]}, {kind: ServiceAccount, name: "system:serviceaccount:oil-a:given", clusterRoles: [view]}]}`)
			got := Translate(Input{Tenant: tenant, Configuration: configuration(t, "spec: "+tc.configuration), Promoted: []Account{{"oil-a", "given"}, {"oil-a", "robot"}}})
			if diff := cmp.Diff(tc.want, got.Spec.Owners); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
	if got := Translate(Input{Tenant: parse(t, `{}`), Promoted: []Account{{"oil-a", "robot"}}}); len(got.Spec.Owners) > 0 {
		t.Errorf("without a CapsuleConfiguration, the owners are %v", got.Spec.Owners)
	}
}

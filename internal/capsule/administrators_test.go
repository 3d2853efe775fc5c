package capsule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// TestAdministrators makes the administrators of the CapsuleConfiguration owners of a Tenant.
func TestAdministrators(t *testing.T) {
	t.Parallel()
	tenant := parse(t, `spec: {owners: [{kind: User, name: alice, clusterRoles: [admin]}, {kind: User, name: both, clusterRoles: [view]}]}`)
	for _, tc := range []struct {
		reason, configuration string
		owners, only          []v1alpha1.Owner
		note                  string
	}{
		{"none", `{}`, []v1alpha1.Owner{{Kind: "User", Name: "alice", Roles: []string{"admin"}}, {Kind: "User", Name: "both", Roles: []string{"view"}}}, nil, ""},
		{"one, and one who is an owner too", `{administrators: [{kind: Group, name: ops}, {kind: User, name: both}]}`,
			[]v1alpha1.Owner{{Kind: "User", Name: "alice", Roles: []string{"admin"}}, {Kind: "User", Name: "both", Roles: []string{"view", RoleDeleter}}, {Kind: "Group", Name: "ops", Roles: []string{RoleDeleter}}},
			[]v1alpha1.Owner{{Kind: "Group", Name: "ops", Roles: []string{RoleDeleter}}}, ""},
		{"other roles, and one that is Kubernetes' own", `{administrators: [{kind: Group, name: "system:masters"}, {kind: ServiceAccount, name: "system:serviceaccount:ci:bot"}], rbac: {administrationClusterRoles: [edit, cluster-admin]}}`,
			[]v1alpha1.Owner{{Kind: "User", Name: "alice", Roles: []string{"admin"}}, {Kind: "User", Name: "both", Roles: []string{"view"}}, {Kind: "ServiceAccount", Namespace: "ci", Name: "bot", Roles: []string{"edit", "tenure-tenant"}}},
			[]v1alpha1.Owner{{Kind: "ServiceAccount", Namespace: "ci", Name: "bot", Roles: []string{"edit", "tenure-tenant"}}}, "CapsuleConfiguration spec.administrators[0]: it gets no rights: names that begin with system:"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			got := Translate(Input{Tenant: tenant, Configuration: configuration(t, "spec: "+tc.configuration)})
			if diff := cmp.Diff(tc.owners, got.Spec.Owners); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.only, got.Administrators); diff != "" {
				t.Errorf("administrators (-want +got):\n%s", diff)
			}
			var notes []string
			for _, n := range got.IgnoredFields() {
				notes = append(notes, n.String())
			}
			if text := strings.Join(notes, "; "); len(got.Refusals()) > 0 || (tc.note == "") != (text == "") || !strings.Contains(text, tc.note) {
				t.Errorf("refused %v, noted %q; want %q", got.Refusals(), text, tc.note)
			}
		})
	}
}

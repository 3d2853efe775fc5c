package capsule

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// tenureDeleter is Tenure's own ClusterRole with the rights of [RoleDeleter] that owners need.
const tenureDeleter = "tenure-namespace-deleter"

// WithoutLayer replaces the ClusterRoles that go with the layer for Capsule: [RoleDeleter] by Tenure's own, and it
// removes [RoleProvisioner], which has no rights. An owner with no other role gets Tenure's own too, since an owner
// without roles would get the default ones.
func WithoutLayer(spec *v1alpha1.TenantSpec) {
	for i := range spec.Owners {
		o := &spec.Owners[i]
		if o.Roles = withoutLayer(o.Roles); len(o.Roles) == 0 {
			o.Roles = []string{tenureDeleter}
		}
	}
	spec.RoleBindings = slices.DeleteFunc(spec.RoleBindings, func(b v1alpha1.TenantRoleBinding) bool { return b.Role == RoleProvisioner })
	for i := range spec.RoleBindings {
		if b := &spec.RoleBindings[i]; b.Role == RoleDeleter {
			b.Role = tenureDeleter
		}
	}
}

// withoutLayer returns the roles without those of the layer.
func withoutLayer(roles []string) []string {
	var kept []string
	for _, role := range roles {
		if role == RoleDeleter {
			role = tenureDeleter
		}
		if role != RoleProvisioner && !slices.Contains(kept, role) {
			kept = append(kept, role)
		}
	}
	return kept
}

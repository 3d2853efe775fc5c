package capsule

import (
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// administrators adds the administrators of the CapsuleConfiguration to the owners, so that they create,
// change and delete namespaces of the tenant by the same rules as its owners. An owner who is also an
// administrator has the roles of both. It omits the administrators that cannot own a Tenant, which [Check]
// reports.
func (t *translation) administrators(c *v1beta2.CapsuleConfiguration) {
	if c == nil {
		return
	}
	roles := c.Spec.RBAC.AdministrationClusterRoles
	if roles == nil {
		roles = []string{RoleDeleter}
	}
	for _, added := range Administrators(c) {
		at := slices.IndexFunc(t.spec.Owners, func(have v1alpha1.Owner) bool { return SameOwner(have, added) })
		given := roles
		if at >= 0 {
			given = slices.Concat(t.spec.Owners[at].Roles, roles)
		}
		added.Roles = t.roleList(given, configurationKind+"spec.rbac.administrationClusterRoles")
		if at >= 0 {
			t.spec.Owners[at] = added
			continue
		}
		t.spec.Owners = append(t.spec.Owners, added)
		t.onlyAdministrators = append(t.onlyAdministrators, added)
	}
	if n := len(t.spec.Owners); n > maxOwners {
		t.note(Refused, configurationKind+"spec.administrators", "with the owners there are %d, and at most %d can be kept", n, maxOwners)
	}
}

// Administrators returns the administrators of a CapsuleConfiguration that can own a Tenant.
func Administrators(c *v1beta2.CapsuleConfiguration) []v1alpha1.Owner {
	var all []v1alpha1.Owner
	for _, id := range c.Spec.Administrators {
		if o, err := owner(id); err == nil {
			all = append(all, o)
		}
	}
	return all
}

// SameOwner reports whether two owners are the same user, group or service account.
func SameOwner(a, b v1alpha1.Owner) bool {
	return a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name
}

// checkAdministrators reports the administrators that no Tenant can have as owners.
func (t *translation) checkAdministrators(all []v1beta2.Identity) {
	for i, id := range all {
		if _, err := owner(id); err != nil {
			t.note(Reported, fmt.Sprintf("%sspec.administrators[%d]", configurationKind, i), "it gets no rights: %v", err)
		}
	}
}

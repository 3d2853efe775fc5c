package capsule

import (
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// LabelPromote is the label of a service account in a tenant's namespace that makes it an owner of
// the tenant, with the value true. An admission policy of config/capsule says who may set it.
const LabelPromote = "owner.projectcapsule.dev/promote"

// Promotes reports whether owners of a Tenant may make service accounts owners by [LabelPromote].
func Promotes(c *v1beta2.CapsuleConfiguration, tenant *v1beta2.Tenant) bool {
	p := tenant.Spec.Permissions
	return c != nil && c.Spec.AllowServiceAccountPromotion && (p == nil || p.AllowOwnerPromotion == nil || *p.AllowOwnerPromotion)
}

// promotions adds the promoted service accounts to the owners. An account that the Tenant names too
// has the roles that the Tenant gives it.
func (t *translation) promotions(c *v1beta2.CapsuleConfiguration, accounts []Account) {
	if !Promotes(c, t.tenant) {
		return
	}
	roles := c.Spec.RBAC.PromotionClusterRoles
	if roles == nil {
		roles = []string{RoleProvisioner, RoleDeleter}
	}
	for _, a := range accounts {
		added := v1alpha1.Owner{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}
		if slices.ContainsFunc(t.spec.Owners, func(have v1alpha1.Owner) bool { return SameOwner(have, added) }) {
			continue
		}
		added.Roles = t.roleList(roles, configurationKind+"spec.rbac.promotionClusterRoles")
		t.spec.Owners = append(t.spec.Owners, added)
	}
	if n := len(t.spec.Owners); n > maxOwners {
		t.note(Refused, "spec.permissions.allowOwnerPromotion", "with the promoted service accounts there are %d owners, and at most %d can be kept", n, maxOwners)
	}
}

// Account is a service account.
type Account struct{ Namespace, Name string }

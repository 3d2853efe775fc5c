package capsule

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// permissions adds the TenantOwners that the Tenant selects to the owners.
func (t *translation) permissions(all []v1beta2.TenantOwner) {
	if p := t.tenant.Spec.Permissions; p != nil {
		for i := range p.MatchOwners {
			if _, err := metav1.LabelSelectorAsSelector(&p.MatchOwners[i]); err != nil {
				t.note(Refused, fmt.Sprintf("spec.permissions.matchOwners[%d]", i), "%v", err)
			}
		}
	}
	selected := slices.DeleteFunc(slices.Clone(all), func(o v1beta2.TenantOwner) bool { return !Selects(t.tenant, &o) })
	slices.SortFunc(selected, func(a, b v1beta2.TenantOwner) int { return cmp.Compare(a.Name, b.Name) })
	for i := range selected {
		t.addOwner(&selected[i])
	}
	if n := len(t.spec.Owners); n > maxOwners {
		t.note(Refused, "spec.permissions.matchOwners", "with those that it selects there are %d owners, and at most %d can be kept", n, maxOwners)
	}
}

// addOwner adds a TenantOwner. An owner that the Tenant also names has the roles of both.
func (t *translation) addOwner(o *v1beta2.TenantOwner) {
	field := "spec.permissions.matchOwners, TenantOwner " + o.Name
	added, err := owner(o.Spec.Identity)
	if err != nil {
		t.note(Refused, field, "%v", err)
		return
	}
	given := o.Spec.ClusterRoles
	if given == nil {
		given = defaultRoles()
	}
	at := slices.IndexFunc(t.spec.Owners, func(have v1alpha1.Owner) bool { return SameOwner(have, added) })
	if at >= 0 {
		given = slices.Concat(t.spec.Owners[at].Roles, given)
	}
	added.Roles = t.roleList(given, field)
	if at >= 0 {
		t.spec.Owners[at] = added
		return
	}
	t.spec.Owners = append(t.spec.Owners, added)
}

// labelOwned is the label of a TenantOwner with the name of the Tenant that selects it.
const labelOwned = "projectcapsule.dev/tenant"

// Selects reports whether a Tenant selects a TenantOwner, or the label of the TenantOwner names the Tenant.
// An invalid selector selects nothing: [Translate] refuses it.
func Selects(tenant *v1beta2.Tenant, o *v1beta2.TenantOwner) bool {
	if !o.DeletionTimestamp.IsZero() {
		return false
	}
	if tenant.Name != "" && o.Labels[labelOwned] == tenant.Name {
		return true
	}
	return tenant.Spec.Permissions != nil &&
		slices.ContainsFunc(tenant.Spec.Permissions.MatchOwners, func(s metav1.LabelSelector) bool {
			selector, err := metav1.LabelSelectorAsSelector(&s)
			return err == nil && selector.Matches(labels.Set(o.Labels))
		})
}

// CheckOwner returns the reason as an error if no Tenant can have the TenantOwner.
func CheckOwner(o *v1beta2.TenantOwner) error {
	t := translation{}
	t.addOwner(o)
	if len(t.notes) > 0 && t.notes[0].State == Refused {
		return fmt.Errorf("%s", t.notes[0].Message)
	}
	return nil
}

// Users returns the sorted users and groups of a CapsuleConfiguration, and the TenantOwners with
// spec.aggregate, which is true by default.
func Users(c *v1beta2.CapsuleConfiguration, owners []v1beta2.TenantOwner) []v1beta2.Identity {
	users := slices.Clone(c.Spec.Users)
	for _, name := range c.Spec.UserNames {
		users = append(users, v1beta2.Identity{Kind: rbacv1.UserKind, Name: name})
	}
	for _, name := range c.Spec.UserGroups {
		users = append(users, v1beta2.Identity{Kind: rbacv1.GroupKind, Name: name})
	}
	for i := range owners {
		if spec := &owners[i].Spec; spec.Aggregate == nil || *spec.Aggregate {
			users = append(users, spec.Identity)
		}
	}
	slices.SortFunc(users, func(a, b v1beta2.Identity) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(users)
}

// ownerBindings adds RoleBindings with the labels and annotations of an owner of the Tenant. They give the
// owner no more rights than the owner's roles.
func (t *translation) ownerBindings(o v1beta2.Owner, owner v1alpha1.Owner, field string) {
	if len(o.Labels)+len(o.Annotations) == 0 {
		return
	}
	if len(o.Labels) > maxBindingMetadata || len(o.Annotations) > maxBindingMetadata {
		t.note(Refused, field, "at most %d labels and %d annotations can be kept", maxBindingMetadata, maxBindingMetadata)
		return
	}
	for _, role := range owner.Roles {
		t.spec.RoleBindings = append(t.spec.RoleBindings, v1alpha1.TenantRoleBinding{
			Role: role, Subjects: []v1alpha1.Subject{{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name}},
			Labels: o.Labels, Annotations: o.Annotations,
		})
	}
}

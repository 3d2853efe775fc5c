package webhook

import (
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// serviceAccountPrefix begins the names of service accounts as users.
const serviceAccountPrefix = "system:serviceaccount:"

// OwnerKeys returns the names by which a user can be an owner of tenants, as
// [TenantKeys] has them: as itself, for a service account by namespace and name,
// and by its groups.
func OwnerKeys(user authenticationv1.UserInfo) []string {
	var keys []string
	if account, ok := strings.CutPrefix(user.Username, serviceAccountPrefix); ok {
		// A namespace's name has no colon, so each user name has one meaning.
		namespace, name, _ := strings.Cut(account, ":")
		keys = append(keys, ownerKey(rbacv1.ServiceAccountKind, namespace, name))
	} else {
		keys = append(keys, ownerKey(rbacv1.UserKind, "", user.Username))
	}
	for _, group := range user.Groups {
		keys = append(keys, ownerKey(rbacv1.GroupKind, "", group))
	}
	return keys
}

// TenantKeys returns the names of a tenant's owners.
func TenantKeys(t *v1alpha1.Tenant) []string {
	return Keys(t.Spec.Owners)
}

// Keys returns the names of owners.
func Keys(owners []v1alpha1.Owner) []string {
	keys := make([]string, 0, len(owners))
	for _, o := range owners {
		keys = append(keys, ownerKey(o.Kind, o.Namespace, o.Name))
	}
	return keys
}

// owns reports whether a user with these owner keys owns a tenant.
func owns(owner []string, t *v1alpha1.Tenant) bool {
	return slices.ContainsFunc(TenantKeys(t), func(key string) bool { return slices.Contains(owner, key) })
}

// ownerKey joins the parts with a character that none of the first two can have.
func ownerKey(kind, namespace, name string) string {
	return kind + "\n" + namespace + "\n" + name
}

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

// OwnerKeys returns the owner keys of a user, in the form of [TenantKeys]: the user name, or for a service
// account its namespace and name, and the user's groups.
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

// TenantKeys returns the owner keys of a tenant's owners.
func TenantKeys(t *v1alpha1.Tenant) []string {
	return Keys(t.Spec.Owners)
}

// Keys returns the owner keys of owners: kind, namespace and name.
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

// ownerKey joins the parts with a character that neither a kind nor a namespace can contain.
func ownerKey(kind, namespace, name string) string {
	return kind + "\n" + namespace + "\n" + name
}

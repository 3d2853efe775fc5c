package tenancy

import (
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// accountUser is the prefix of the user name of a service account.
const accountUser = "system:serviceaccount:"

// OwnerNamespaces returns the namespaces of the service accounts that own a Tenant,
// sorted.
func OwnerNamespaces(t *v1alpha1.Tenant) []string {
	var namespaces []string
	for _, o := range t.Spec.Owners {
		if namespace, _ := ownerAccount(o); namespace != "" {
			namespaces = append(namespaces, namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// OwnerAccounts returns the names of the accounts of a namespace that own one of the
// Tenants, sorted.
func OwnerAccounts(tenants []v1alpha1.Tenant, namespace string) []string {
	var accounts []string
	for i := range tenants {
		for _, o := range tenants[i].Spec.Owners {
			if in, name := ownerAccount(o); in == namespace && name != "" {
				accounts = append(accounts, name)
			}
		}
	}
	slices.Sort(accounts)
	return slices.Compact(accounts)
}

// ownerAccount returns namespace and name of an owner that is a service account, even if
// the Tenant names it by its user name. It returns empty strings for other owners.
func ownerAccount(o v1alpha1.Owner) (namespace, name string) {
	switch o.Kind {
	case rbacv1.ServiceAccountKind:
		return o.Namespace, o.Name
	case rbacv1.UserKind:
		if account, ok := strings.CutPrefix(o.Name, accountUser); ok {
			namespace, name, _ = strings.Cut(account, ":")
		}
	}
	return namespace, name
}

package tenancy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
)

func TestOwnerAccounts(t *testing.T) {
	t.Parallel()
	owned := func(owners ...v1alpha1.Owner) v1alpha1.Tenant {
		return v1alpha1.Tenant{Spec: v1alpha1.TenantSpec{Owners: owners}}
	}
	account := func(namespace, name string) v1alpha1.Owner {
		return v1alpha1.Owner{Kind: "ServiceAccount", Namespace: namespace, Name: name}
	}
	user := func(name string) v1alpha1.Owner { return v1alpha1.Owner{Kind: "User", Name: name} }
	for name, tc := range map[string]struct {
		reason     string
		tenants    []v1alpha1.Tenant
		namespace  string
		want       []string
		namespaces []string
	}{
		"none":     {"people and groups live nowhere", []v1alpha1.Tenant{owned(user("alice"), v1alpha1.Owner{Kind: "Group", Name: "system:serviceaccounts:apps"})}, "apps", nil, nil},
		"accounts": {"each account of the namespace is listed once, by name", []v1alpha1.Tenant{owned(account("apps", "b"), account("apps", "a"), account("apps", "b"))}, "apps", []string{"a", "b"}, []string{"apps"}},
		"others":   {"accounts of other namespaces are not", []v1alpha1.Tenant{owned(account("ci", "a"), account("apps", "a"))}, "apps", []string{"a"}, []string{"apps", "ci"}},
		"users":    {"an account may be named as the user that it is", []v1alpha1.Tenant{owned(user("system:serviceaccount:apps:a"), user("system:serviceaccount:apps"), user("system:serviceaccount:"))}, "apps", []string{"a"}, []string{"apps"}},
		"tenants":  {"whichever tenant it owns", []v1alpha1.Tenant{owned(account("apps", "b")), owned(account("apps", "a"))}, "apps", []string{"a", "b"}, []string{"apps"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, OwnerAccounts(tc.tenants, tc.namespace)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.namespaces, OwnerNamespaces(&tc.tenants[0])); diff != "" {
				t.Errorf("%s: namespaces (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

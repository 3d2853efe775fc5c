package failureevents

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A tenant neither hears of what another one delivers nor keeps it from hearing of it.
func TestReaders(t *testing.T) {
	t.Parallel()
	account := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "delegate"}}
	by := func(sync string) map[string]string {
		return map[string]string{Kustomization.Group + "/namespace": "flux-system", Kustomization.Group + "/name": sync}
	}
	bound := func(namespace string, labels map[string]string) client.Object {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "more", Labels: labels}, Subjects: account}
	}
	everywhere := func(labels map[string]string, subject rbacv1.Subject) client.Object {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "wide-" + subject.Name, Labels: labels}, Subjects: []rbacv1.Subject{subject}}
	}
	sync := func(name, account string) client.Object {
		k := kustomization("flux-system", "True", "ReconciliationSucceeded", "", map[string]any{"path": "./"})
		k.SetName(name)
		k.SetUID("")
		if account != "" {
			if err := unstructured.SetNestedField(k.Object, account, "spec", "serviceAccountName"); err != nil {
				t.Fatal(err)
			}
		}
		return k
	}
	root := everywhere(nil, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "root"})
	for _, tc := range []struct {
		reason string
		more   []client.Object
		want   []string
	}{
		{"the manager bound it", nil, []string{"apps"}},
		{"another tenant binds the account: it hears nothing, and silences nobody", []client.Object{bound("billing", nil)}, []string{"apps"}},
		{"another tenant binds the account by its own sync", []client.Object{bound("billing", map[string]string{Kustomization.Group + "/namespace": "billing", Kustomization.Group + "/name": "x"})}, []string{"apps"}},
		{"another tenant's delegating sync does", []client.Object{bound("billing", by("theirs")), sync("theirs", "delegate-two")}, []string{"apps"}},
		{"another tenant's delegating sync does, as an account that is listed", []client.Object{bound("billing", by("listed")), sync("listed", "")}, []string{"apps"}},
		{"a sync that is gone says nothing", []client.Object{bound("billing", by("gone"))}, []string{"apps"}},
		{"the platform's root does: two tenants share it", []client.Object{bound("billing", by("tenants")), sync("tenants", "root"), root}, nil},
		{"the platform's root without an account does", []client.Object{bound("preview", by("tenants")), sync("tenants", "")}, []string{"apps", "preview"}},
		{"the account has rights everywhere", []client.Object{everywhere(nil, account[0])}, nil},
		{"or all of its namespace have", []client.Object{everywhere(nil, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:flux-system"})}, nil},
		{"or its user has", []client.Object{everywhere(nil, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:serviceaccount:flux-system:delegate"})}, nil},
		{"what everybody has is nothing", []client.Object{everywhere(nil, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"})}, []string{"apps"}},
		{"an owner of a Tenant has no rights everywhere", []client.Object{everywhere(map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}, account[0])}, []string{"apps"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			k := kustomization("flux-system", "False", "ReconciliationFailed", "forbidden", map[string]any{"serviceAccountName": "delegate"})
			r, _, _ := harness(t, k, "apps")
			for _, o := range tc.more {
				if err := r.Client.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			got, err := r.readers(t.Context(), k, &v1alpha1.TenancyProfileSpec{
				PlatformNamespaces: []string{"flux-system"},
				DelegatedSyncs:     []v1alpha1.DelegatedSync{{Tenant: "billing", Namespace: "flux-system", Name: "listed"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("readers(): -want, +got:\n%s", diff)
			}
		})
	}
}

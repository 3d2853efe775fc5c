package tenantnamespace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// edit changes the Tenant, and lets the reconciler see it.
func (w *world) edit(t *testing.T, r *Reconciler, change func(*v1alpha1.TenantSpec)) {
	t.Helper()
	tenant := &v1alpha1.Tenant{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, tenant); err != nil {
		t.Fatal(err)
	}
	change(&tenant.Spec)
	if err := w.Update(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	w.look(t, r)
}

// owners returns who has which role in the namespace, but for that of tenants.
func (w *world) owners(t *testing.T) map[string][]string {
	t.Helper()
	var list rbacv1.RoleBindingList
	if err := w.List(t.Context(), &list, client.InNamespace("dev")); err != nil {
		t.Fatal(err)
	}
	have := map[string][]string{}
	for _, b := range list.Items {
		if b.RoleRef.Name == tenancy.Role {
			continue
		}
		for _, s := range b.Subjects {
			have[b.RoleRef.Name] = append(have[b.RoleRef.Name], s.Name)
		}
	}
	return have
}

func user(name string, roles ...string) v1alpha1.Owner {
	return v1alpha1.Owner{Kind: rbacv1.UserKind, Name: name, Roles: roles}
}

// podQuota is a quota of one namespace or the whole tenant.
func podQuota(scope string) v1alpha1.TenantQuota {
	q := v1alpha1.TenantQuota{Name: "all", Scope: scope}
	q.Hard = v1alpha1.Quantities{corev1.ResourcePods: resource.MustParse("10")}
	return q
}

// TestRightsWithoutQuota takes rights away, and gives some, while a quota of the whole
// tenant is not there: nobody gets any before it is, and nobody keeps any for it.
func TestRightsWithoutQuota(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, "https://git.example.com/acme/app")
	w.edit(t, r, func(s *v1alpha1.TenantSpec) {
		s.Owners = []v1alpha1.Owner{user("ann", "admin", "view"), user("bob", "admin"), user("dan", "edit")}
		s.Quotas = []v1alpha1.TenantQuota{podQuota("Namespace")}
	})
	if diff := cmp.Diff(map[string][]string{"admin": {"ann", "bob"}, "view": {"ann"}, "edit": {"dan"}}, w.owners(t)); diff != "" {
		t.Fatalf("at first (-want +got):\n%s", diff)
	}
	all := client.ObjectKey{Namespace: "dev", Name: tenancy.QuotaObjectName(&v1alpha1.Tenant{}, "all")}
	kept := func(what string) {
		t.Helper()
		if err := w.Get(t.Context(), all, &corev1.ResourceQuota{}); err != nil {
			t.Errorf("%s: what held before goes before the tenant's quota comes: %v", what, err)
		}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: "dev", Name: "dev"}, &corev1.ServiceAccount{}); err != nil || !w.delivers(t) {
			t.Errorf("%s: what the tenant delivers with goes, though it is to have it: %v", what, err)
		}
		if w.problem == nil {
			t.Errorf("%s: nothing is told", what)
		}
	}

	// The API server refuses to keep what the whole tenant is to have, say.
	quota := podQuota(tenancy.QuotaScopeTenant)
	w.edit(t, r, func(s *v1alpha1.TenantSpec) {
		s.Quotas = []v1alpha1.TenantQuota{quota}
		s.Owners = []v1alpha1.Owner{user("eve", "admin", "edit", "view"), user("ann", "view"), user("bob", "admin")}
	})
	if diff := cmp.Diff(map[string][]string{"admin": {"bob"}, "view": {"ann"}}, w.owners(t)); diff != "" {
		t.Errorf("while the quota is not there, who lost a role has it, or who is new has one (-want +got):\n%s", diff)
	}
	kept("an edit with the quota")

	w.edit(t, r, func(s *v1alpha1.TenantSpec) { s.Owners = []v1alpha1.Owner{user("eve", "admin", "edit", "view")} })
	if diff := cmp.Diff(map[string][]string{}, w.owners(t)); diff != "" {
		t.Errorf("after a later edit (-want +got):\n%s", diff)
	}
	kept("a later edit")

	if err := Apply(t.Context(), w, tenancy.ShareQuota(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}}, "dev", quota, corev1.ResourceList(quota.Hard))); err != nil {
		t.Fatal(err)
	}
	w.look(t, r)
	if diff := cmp.Diff(map[string][]string{"admin": {"eve"}, "edit": {"eve"}, "view": {"eve"}}, w.owners(t)); diff != "" || w.problem != nil {
		t.Errorf("with the quota: %v (-want +got):\n%s", w.problem, diff)
	}
}

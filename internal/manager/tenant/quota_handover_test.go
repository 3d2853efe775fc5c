package tenant

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/classes"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noKinds and noFailures are what the reconciler of namespaces asks and tells.
type (
	noKinds    struct{}
	noFailures struct{}
)

func (noKinds) Served(context.Context) ([]string, error) { return nil, nil }
func (noFailures) Set(string, error)                     {}

// platform runs both reconcilers, and Kubernetes' quota controller, over one cluster, in
// which two Pods run in namespace dev-1.
type platform struct {
	client.WithWatch
	t          *testing.T
	tenants    *Reconciler
	namespaces *tenantnamespace.Reconciler
}

func newPlatform(t *testing.T, there ...client.Object) *platform {
	c, reports := cluster(t, there...), &Reports{}
	return &platform{
		WithWatch: c, t: t,
		tenants: &Reconciler{Client: c, APIReader: c, Now: time.Now, Profiles: oneProfile{}, Rules: enforced{}, Reports: reports},
		namespaces: &tenantnamespace.Reconciler{
			Client: c, Profiles: oneProfile{}, Kinds: noKinds{}, Classes: classes.Reader{Client: c}, Failures: noFailures{}, Reports: reports,
			Events: events.NewFakeRecorder(100), Now: time.Now,
		},
	}
}

// look reconciles all namespaces.
func (p *platform) look() {
	p.t.Helper()
	var list corev1.NamespaceList
	if err := p.List(p.t.Context(), &list); err != nil {
		p.t.Fatal(err)
	}
	for _, ns := range list.Items {
		if _, err := p.namespaces.Reconcile(p.t.Context(), ctrl.Request{NamespacedName: named(ns.Name)}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// settle goes on for longer than anything takes.
func (p *platform) settle() {
	p.t.Helper()
	var list v1alpha1.TenantList
	if err := p.List(p.t.Context(), &list); err != nil {
		p.t.Fatal(err)
	}
	for range 4 {
		for _, tenant := range list.Items {
			if _, err := p.tenants.Reconcile(p.t.Context(), ctrl.Request{NamespacedName: named(tenant.Name)}); err != nil {
				p.t.Fatal(err)
			}
		}
		p.look()
		for _, q := range p.quotas() {
			q.Status.Hard, q.Status.Used = q.Spec.Hard, nil
			if q.Namespace == "dev-1" {
				q.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}
			}
			if err := p.Update(p.t.Context(), &q); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

func (p *platform) quotas() []corev1.ResourceQuota {
	p.t.Helper()
	var list corev1.ResourceQuotaList
	if err := p.List(p.t.Context(), &list); err != nil {
		p.t.Fatal(err)
	}
	return list.Items
}

// parts are the Pods of each quota, behind the name of the Tenant whose it is.
func (p *platform) parts() map[string]string {
	p.t.Helper()
	parts := map[string]string{}
	for _, q := range p.quotas() {
		part := q.Labels[v1alpha1.LabelFluxTenant] + " " + q.Spec.Hard.Pods().String()
		if !q.DeletionTimestamp.IsZero() {
			part += ", deleted"
		}
		parts[q.Namespace+"/"+q.Name] = part
	}
	return parts
}

// roles are those that a user or an account has in namespace dev-2.
func (p *platform) roles(name string) []string {
	p.t.Helper()
	var bindings rbacv1.RoleBindingList
	if err := p.List(p.t.Context(), &bindings, client.InNamespace("dev-2")); err != nil {
		p.t.Fatal(err)
	}
	var roles []string
	for _, b := range bindings.Items {
		if slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Name == name }) {
			roles = append(roles, b.RoleRef.Name)
		}
	}
	return roles
}

// team is a Tenant with an owner of its name, and a quota if it has a name.
func team(name, quota, pods string) *v1alpha1.Tenant {
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	tenant.Spec.Owners = []v1alpha1.Owner{{Kind: rbacv1.UserKind, Name: name, Roles: []string{"admin"}}}
	if quota != "" {
		q := v1alpha1.TenantQuota{Name: quota}
		q.Hard = v1alpha1.Quantities{corev1.ResourcePods: resource.MustParse(pods)}
		tenant.Spec.Quotas = []v1alpha1.TenantQuota{q}
	}
	return tenant
}

func namespaceOf(tenant, name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelTenant: tenant}}}
}

// TestHandover gives a namespace of a Tenant that has a quota to another one: its part
// of the quota goes with it to nobody.
func TestHandover(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		to     *v1alpha1.Tenant
		want   map[string]string
		waits  bool
	}{
		"no quota": {
			"who has no quota is held by none", team("ops", "", ""),
			map[string]string{"dev-1/tenure-all": "dev 10"}, false,
		},
		"another quota": {
			"who has a quota is held by that one alone", team("ops", "pods", "4"),
			map[string]string{"dev-1/tenure-all": "dev 10", "dev-2/tenure-pods": "ops 4"}, true,
		},
		"a quota of that name": {
			"the part of who had the namespace before is not that of who has it now", team("ops", "all", "4"),
			map[string]string{"dev-1/tenure-all": "dev 10", "dev-2/tenure-all": "ops 4"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlatform(t, team("dev", "all", "10"), tc.to, namespaceOf("dev", "dev-1"), namespaceOf("dev", "dev-2"))
			p.settle()
			if diff := cmp.Diff(map[string]string{"dev-1/tenure-all": "dev 5", "dev-2/tenure-all": "dev 5"}, p.parts()); diff != "" {
				t.Fatalf("before (-want +got):\n%s", diff)
			}
			moved := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"tenure.dev/tenant":"ops"}}}`))
			if err := p.Patch(t.Context(), namespaceOf("", "dev-2"), moved); err != nil {
				t.Fatal(err)
			}
			p.look()
			if roles := p.roles("dev"); len(roles) > 0 {
				t.Errorf("%s: who had the namespace before has roles %v", tc.reason, roles)
			}
			if roles := p.roles("ops"); (len(roles) == 0) != tc.waits {
				t.Errorf("%s: at first its owner has roles %v", tc.reason, roles)
			}
			p.settle()
			if diff := cmp.Diff(tc.want, p.parts()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestPartDeleted deletes a part of a quota in a namespace that stays, and leaves its
// finalizer, as people do and a manager that is killed in between.
func TestPartDeleted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		// change is done to the Tenant, seen is what is there when only the namespaces
		// were looked at, made when the Tenant was.
		change            func(*v1alpha1.TenantSpec)
		seen, made, after map[string]string
	}{
		"wanted": {
			"it comes back as it was, and nobody gets what is used there", func(*v1alpha1.TenantSpec) {},
			map[string]string{"dev-1/tenure-all": "dev 5", "dev-2/tenure-all": "dev 5, deleted"},
			map[string]string{"dev-1/tenure-all": "dev 5", "dev-2/tenure-all": "dev 5"},
			map[string]string{"dev-1/tenure-all": "dev 5", "dev-2/tenure-all": "dev 5"},
		},
		"not wanted": {
			"what the Tenant does not have any more goes", func(s *v1alpha1.TenantSpec) { s.Quotas = nil },
			map[string]string{"dev-1/tenure-all": "dev 5"},
			map[string]string{},
			map[string]string{},
		},
		"counts something else": {
			"what is not bounded any more is not in it", func(s *v1alpha1.TenantSpec) {
				s.Quotas[0].Hard = v1alpha1.Quantities{corev1.ResourceServices: resource.MustParse("2")}
			},
			map[string]string{"dev-1/tenure-all": "dev 5", "dev-2/tenure-all": "dev 5, deleted"},
			map[string]string{"dev-1/tenure-all": "dev 0", "dev-2/tenure-all": "dev 0"},
			map[string]string{"dev-1/tenure-all": "dev 0", "dev-2/tenure-all": "dev 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlatform(t, team("dev", "all", "10"), namespaceOf("dev", "dev-1"), namespaceOf("dev", "dev-2"))
			p.settle()
			if err := p.Delete(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "dev-2", Name: "tenure-all"}}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"dev-1/tenure-all": "dev 5", "dev-2/tenure-all": "dev 5, deleted"}, p.parts()); diff != "" {
				t.Fatalf("before (-want +got):\n%s", diff)
			}
			tenant := &v1alpha1.Tenant{}
			if err := p.Get(t.Context(), named("dev"), tenant); err != nil {
				t.Fatal(err)
			}
			tc.change(&tenant.Spec)
			tenant.Spec.Owners = append(tenant.Spec.Owners, v1alpha1.Owner{Kind: rbacv1.UserKind, Name: "new", Roles: []string{"admin"}})
			if err := p.Update(t.Context(), tenant); err != nil {
				t.Fatal(err)
			}
			p.look()
			if diff := cmp.Diff(tc.seen, p.parts()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if roles := p.roles("new"); len(tenant.Spec.Quotas) > 0 && len(roles) > 0 {
				t.Errorf("%s: while the part was on its way out, somebody new got %v", tc.reason, roles)
			}
			if _, err := p.tenants.Reconcile(t.Context(), ctrl.Request{NamespacedName: named("dev")}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.made, p.parts()); diff != "" {
				t.Errorf("%s, once the Tenant is looked at (-want +got):\n%s", tc.reason, diff)
			}
			p.settle()
			if diff := cmp.Diff(tc.after, p.parts()); diff != "" {
				t.Errorf("%s, in the end (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string{"admin"}, p.roles("new")); diff != "" {
				t.Errorf("%s, in the end somebody new has (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

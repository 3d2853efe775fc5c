package tenantnamespace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestReleaseBeforeContent deletes a namespace: the parameters' finalizer goes before
// Kubernetes deletes what is in the namespace, and after the label.
func TestReleaseBeforeContent(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, "https://git.example.com/acme/app")
	w.settled(t, r)
	parameters := func() *v1alpha1.TenantParameters {
		t.Helper()
		p := &v1alpha1.TenantParameters{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: "dev", Name: v1alpha1.ParametersName}, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	ns := &corev1.Namespace{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, ns); err != nil {
		t.Fatal(err)
	}
	// As Kubernetes does, which keeps a namespace until it is empty.
	ns.Finalizers = []string{"kubernetes.io/emptied"}
	if err := w.Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	began := w.now
	for range 4 {
		w.look(t, r)
		if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, ns); err != nil {
			t.Fatal(err)
		}
		_, labelled := ns.Labels[v1alpha1.LabelParameters]
		if held := len(parameters().Finalizers) > 0; !held && (labelled || w.now.Sub(began) < propagationDelay) {
			t.Errorf("the parameters are let go after %s, and the label is there: %t", w.now.Sub(began), labelled)
		}
	}
	if w.reported != nil {
		t.Error("a later namespace of the same name is taken for one that is up to date")
	}
	if diff := cmp.Diff([]string(nil), parameters().Finalizers); diff != "" || !parameters().DeletionTimestamp.IsZero() {
		t.Errorf("the parameters hold up the namespace (-want +got):\n%s", diff)
	}
	if waited := w.now.Sub(began); waited > 4*propagationDelay/2 {
		t.Errorf("let go after %s, when Kubernetes has looked", waited)
	}
}

// TestLeavesDespiteFailures deletes a Tenant whose namespace cannot be brought up to date:
// the manager gets the right to delete the namespace, and the Tenant hears that deliveries
// have ended.
func TestLeavesDespiteFailures(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, "https://git.example.com/acme/app")
	r.Manager = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "tenure-manager"}
	w.settled(t, r)
	tenant := &v1alpha1.Tenant{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, tenant); err != nil {
		t.Fatal(err)
	}
	tenant.Finalizers = []string{"tenure.dev/tenant"}
	if err := w.Update(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	// The manager would write them anew.
	parameters := &v1alpha1.TenantParameters{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "dev", Name: v1alpha1.ParametersName}, parameters); err != nil {
		t.Fatal(err)
	}
	parameters.Spec.Cordoned = true
	if err := w.Update(t.Context(), parameters); err != nil {
		t.Fatal(err)
	}
	w.broken, w.reported = "TenantParameters", nil
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "dev"}}); err == nil {
		t.Error("the namespace is said to be up to date")
	}
	if w.reported == nil || w.reported.DeletionTimestamp.IsZero() || w.problem == nil {
		t.Errorf("reported about %v: %v", w.reported, w.problem)
	}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "dev", Name: tenancy.OffboardingBinding}, &rbacv1.RoleBinding{}); err != nil {
		t.Errorf("the manager may not delete the namespace: %v", err)
	}
}

package tenant

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestUnfinished reconciles a changed Tenant while a webhook of another program fails: the Tenant does not stay
// ready, and its condition has the error. Another error comes into the status after a while only.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	tenant := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: "dev", UID: "1", Generation: 2, Finalizers: []string{Finalizer}, Labels: map[string]string{v1alpha1.LabelTenant: "dev"}},
		Spec:       v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{Create: []string{"dev-new"}}},
		Status: v1alpha1.TenantStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{
			{Type: ConditionProvisioned, Status: metav1.ConditionTrue, Reason: ReasonInPlace, ObservedGeneration: 1},
			{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonInPlace, ObservedGeneration: 1},
		}},
	}
	failure := "failed calling webhook one"
	kube := interceptor.NewClient(cluster(t, tenant), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*corev1.Namespace); ok && failure != "" {
			return apierrors.NewInternalError(errors.New(failure))
		}
		return c.Create(ctx, o, opts...)
	}})
	r := &Reconciler{Client: kube, APIReader: kube, Now: func() time.Time { return now }, Profiles: oneProfile{}, Rules: enforced{}, Reports: &Reports{}}
	reconcile := func(fails bool, status metav1.ConditionStatus, want string) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: named("dev")}); (err != nil) != fails {
			t.Errorf("the reconciliation returned %v", err)
		}
		got := &v1alpha1.Tenant{}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(tenant), got); err != nil {
			t.Fatal(err)
		}
		c := apimeta.FindStatusCondition(got.Status.Conditions, ConditionReady)
		if c == nil || c.Status != status || c.ObservedGeneration != 2 || !strings.Contains(c.Message, want) {
			t.Errorf("want Ready to be %s with %q, got %v", status, want, c)
		}
	}
	reconcile(true, metav1.ConditionUnknown, "the manager tries again: cannot make namespace dev-new: Internal error occurred: failed calling webhook one")
	failure = "failed calling webhook two"
	reconcile(true, metav1.ConditionUnknown, "webhook one")
	now = now.Add(soonInterval)
	reconcile(true, metav1.ConditionUnknown, "webhook two")
	failure = ""
	reconcile(false, metav1.ConditionUnknown, "namespace dev-new is not in place yet")
}

// TestFailingNamespace shows the error of a namespace that is tried again, until there is a report on the namespace.
func TestFailingNamespace(t *testing.T) {
	t.Parallel()
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{
		Name: "dev", UID: "1", Generation: 1, Finalizers: []string{Finalizer}, Labels: map[string]string{v1alpha1.LabelTenant: "dev"},
	}}
	apps := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev-apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev"}}}
	kube := cluster(t, tenant, apps)
	heard := 0
	r := &Reconciler{Client: kube, APIReader: kube, Now: time.Now, Profiles: oneProfile{}, Rules: enforced{}, Reports: &Reports{Changed: func(string) { heard++ }}}
	ready := func(want string) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: named("dev")}); err != nil {
			t.Fatal(err)
		}
		got := &v1alpha1.Tenant{}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(tenant), got); err != nil {
			t.Fatal(err)
		}
		if c := apimeta.FindStatusCondition(got.Status.Conditions, ConditionReady); c == nil || c.Message != want {
			t.Errorf("want %q, got %v", want, c)
		}
	}
	r.Reports.Retry(tenant, "dev-apps", errors.New("it failed"))
	r.Reports.Retry(tenant, "dev-apps", errors.New("it failed"))
	ready("namespace dev-apps is not in place yet; namespace dev-apps is tried again: it failed")
	r.Reports.Report(tenant, "dev-apps", nil)
	ready("1 namespace is in place")
	r.Reports.Retry(tenant, "dev-apps", errors.New("it failed later"))
	ready("1 namespace is in place")
	if heard != 2 {
		t.Errorf("the Tenant was reconciled %d times, want once for the error and once for the report", heard)
	}
}

// TestConflicts lets the API server answer with conflicts, as a webhook of another program can: the manager tries again
// less and less often, and at once after it has recovered.
func TestConflicts(t *testing.T) {
	t.Parallel()
	tenant := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: "dev", UID: "1", Generation: 1, Finalizers: []string{Finalizer}, Labels: map[string]string{v1alpha1.LabelTenant: "dev"}},
		Spec:       v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{Create: []string{"dev-new"}}},
	}
	conflicts := true
	kube := interceptor.NewClient(cluster(t, tenant), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*corev1.Namespace); ok && conflicts {
			return apierrors.NewConflict(corev1.Resource("namespaces"), o.GetName(), errors.New("another client"))
		}
		return c.Create(ctx, o, opts...)
	}})
	r := &Reconciler{Client: kube, APIReader: kube, Now: time.Now, Profiles: oneProfile{}, Rules: enforced{}, Reports: &Reports{}}
	var delays []time.Duration
	for attempt := range 3 {
		conflicts = attempt < 2
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: named("dev")})
		if err != nil {
			t.Fatal(err)
		}
		delays = append(delays, result.RequeueAfter)
	}
	if delays[0] <= 0 || delays[1] <= delays[0] || delays[2] != 0 {
		t.Errorf("want delays that grow and end, got %s", delays)
	}
}

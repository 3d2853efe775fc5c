package tenant

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestReportsOfTheOneBefore makes a Tenant whose namespace was there before, and was
// that of a Tenant of the same name and generation.
func TestReportsOfTheOneBefore(t *testing.T) {
	t.Parallel()
	made := func(uid types.UID) *v1alpha1.Tenant {
		return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{
			Name: "dev", UID: uid, Generation: 1, Finalizers: []string{Finalizer}, Labels: map[string]string{v1alpha1.LabelTenant: "dev"},
		}}
	}
	before, after := made("1"), made("2")
	apps := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev-apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev"}}}
	kube := cluster(t, after, apps)
	var heard []string
	r := &Reconciler{Client: kube, APIReader: kube, Now: time.Now, Profiles: oneProfile{}, Rules: enforced{}, Reports: &Reports{Changed: func(tenant string) { heard = append(heard, tenant) }}}
	ready := func(want metav1.ConditionStatus) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: named("dev")}); err != nil {
			t.Fatal(err)
		}
		tenant := &v1alpha1.Tenant{}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(after), tenant); err != nil {
			t.Fatal(err)
		}
		if c := apimeta.FindStatusCondition(tenant.Status.Conditions, ConditionReady); c == nil || c.Status != want {
			t.Errorf("want Ready to be %s, got %v", want, c)
		}
	}
	r.Reports.Report(before, "dev-apps", nil)
	ready(metav1.ConditionUnknown)
	r.Reports.Report(after, "dev-apps", nil)
	ready(metav1.ConditionTrue)
	if len(heard) != 2 {
		t.Errorf("the news of the second Tenant is no news: %v", heard)
	}
}

// TestRetryAfterRefusal refuses the namespace of a new Tenant, as an API server that has just started
// does.
func TestRetryAfterRefusal(t *testing.T) {
	t.Parallel()
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{
		Name: "dev", UID: "1", Generation: 1, Finalizers: []string{Finalizer}, Labels: map[string]string{v1alpha1.LabelTenant: "dev"},
	}}
	tenant.Spec.Namespaces.Create = []string{"dev-apps"}
	refused := true
	kube := interceptor.NewClient(cluster(t, tenant), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*corev1.Namespace); ok && refused {
				return apierrors.NewForbidden(corev1.Resource("namespaces"), o.GetName(), nil)
			}
			return c.Create(ctx, o, opts...)
		},
	})
	now := time.Now()
	r := &Reconciler{Client: kube, APIReader: kube, Now: func() time.Time { return now }, Profiles: oneProfile{}, Rules: enforced{}, Reports: &Reports{}}
	retried := func(reason string, want time.Duration) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: named("dev")})
		if err != nil || result.RequeueAfter != want {
			t.Errorf("%s: want another attempt after %s, got %s: %v", reason, want, result.RequeueAfter, err)
		}
	}
	retried("the first refusal", 5*time.Second)
	now = now.Add(50 * time.Second)
	retried("it may end by itself", 5*time.Second)
	now = now.Add(20 * time.Second)
	retried("a person has to allow it", time.Minute)
	refused = false
	retried("it is made", 0)
}

// TestLongMessages lets a Tenant exceed so many quotas that the API server would refuse the message of the condition.
func TestLongMessages(t *testing.T) {
	t.Parallel()
	f := &reconcileState{tenant: &v1alpha1.Tenant{}, profile: &v1alpha1.TenancyProfile{}}
	f.tenant.Spec.Quotas = []v1alpha1.TenantQuota{{Name: "all"}}
	for i := range 1000 {
		f.exceeded = append(f.exceeded, fmt.Sprintf("count/%0300d.example.com", i))
	}
	status := &v1alpha1.TenantStatus{}
	(&Reconciler{}).withinQuota(f, status)
	c := apimeta.FindStatusCondition(status.Conditions, ConditionWithinQuota)
	if c == nil || len(c.Message) > 2*maxMessage || c.Reason != ReasonExceeded {
		t.Errorf("want a message that the API server accepts, got %d bytes, %v", len(c.Message), c.Reason)
	}
}

// TestStandsWithDeletedNamespace deletes a namespace of a ready Tenant while no manager runs. The next manager sets
// the Tenant to not ready, although the namespace never gets a report.
func TestStandsWithDeletedNamespace(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	f := &reconcileState{tenant: &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev", UID: "1", Generation: 1}}}
	f.tenant.Status.Namespaces = []string{"dev-a", "dev-b"}
	f.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev-a"}})
	f.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev-b", DeletionTimestamp: &now}})
	before := &metav1.Condition{Type: ConditionProvisioned, Status: metav1.ConditionTrue, ObservedGeneration: 1}
	r := &Reconciler{Reports: &Reports{}}
	if !r.stands(f, before) {
		t.Error("a manager that has just started has no reports, and the condition changes")
	}
	r.Reports.Report(f.tenant, "dev-a", nil)
	if r.stands(f, before) {
		t.Error("the condition stays while a namespace is being deleted")
	}
}

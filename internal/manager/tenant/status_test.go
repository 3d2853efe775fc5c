package tenant

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	r := &Reconciler{Client: kube, APIReader: kube, Now: time.Now, Profiles: oneProfile{}, Reports: &Reports{Changed: func(tenant string) { heard = append(heard, tenant) }}}
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

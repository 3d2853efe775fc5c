package tenant

import (
	"context"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestOffboardStale lets a Tenant go whose namespace and rights the cache does not
// know of yet: nothing of it stays.
func TestOffboardStale(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev", DeletionTimestamp: &now, Finalizers: []string{Finalizer}}}
	tenant.Spec.Owners = []v1alpha1.Owner{{Kind: rbacv1.UserKind, Name: "ann"}}
	made := map[string]string{v1alpha1.LabelTenant: "dev", tenancy.LabelManaged: tenancy.ManagedValue}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev-apps", Labels: made}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "tenure:owners:dev", Labels: made}}
	others := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "tenure:owners:ops", Labels: map[string]string{
		v1alpha1.LabelTenant: "ops", tenancy.LabelManaged: tenancy.ManagedValue,
	}}}
	live := cluster(t, tenant, namespace, binding, others)
	stale := interceptor.NewClient(live, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	r := &Reconciler{Client: stale, Live: live, Profiles: oneProfile{}}
	reconcile := func() {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: named("dev")}); err != nil {
			t.Fatal(err)
		}
	}

	reconcile()
	if err := live.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant); err != nil {
		t.Fatalf("the Tenant is gone before its namespace: %v", err)
	}
	if c := apimeta.FindStatusCondition(tenant.Status.Conditions, ConditionReady); c == nil || !strings.Contains(c.Message, "dev-apps") {
		t.Errorf("the condition does not name the namespace: %v", c)
	}
	if err := live.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	reconcile()
	for _, object := range []client.Object{tenant, binding} {
		if err := live.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is still there: %v", object, object.GetName(), err)
		}
	}
	if err := live.Get(t.Context(), client.ObjectKeyFromObject(others), others); err != nil {
		t.Errorf("the right of another tenant is gone: %v", err)
	}
}

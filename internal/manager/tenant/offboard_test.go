package tenant

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	r := &Reconciler{Client: stale, APIReader: live, Now: time.Now, Profiles: oneProfile{}, Rules: enforced{}, Reports: &Reports{}}
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

// TestOffboardDelivered lets a Tenant go to whose namespaces the manager may deliver
// still: no namespace goes before that has ended, whatever the cache shows.
func TestOffboardDelivered(t *testing.T) {
	t.Parallel()
	const platforms = "kustomize.toolkit.fluxcd.io/namespace"
	for name, tc := range map[string]struct {
		reason string
		// labels are those of the namespaces, beside the tenant's.
		labels     map[string]string
		namespaces int
		// behind says that the cache does not show the Kustomization, unseen that
		// the reconciler of the namespaces has not seen the Tenant go.
		behind, unseen bool
		reads          int
		want           string
	}{
		"cached":        {"what the cache shows is not asked for", nil, 2, false, false, 0, "waits for Kustomization dev-1/app to end"},
		"behind":        {"the cache may show later what was delivered before", nil, 2, true, false, 2, "waits for Kustomization dev-1/app to end"},
		"behind, many":  {"many namespaces are asked about at once", nil, maxNamespaceReads + 1, true, false, 1, "waits for Kustomization dev-1/app to end"},
		"unseen":        {"who has not seen the Tenant go may deliver a moment later", nil, 1, true, true, 0, "waits for deliveries to namespace dev-1 to be stopped"},
		"stays, behind": {"what stays is not left to a Kustomization that would prune it", map[string]string{platforms: "flux-system"}, 1, true, false, 1, "waits for Kustomization dev-1/app to end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := metav1.Now()
			tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev", UID: "1", Generation: 2, DeletionTimestamp: &now, Finalizers: []string{Finalizer}}}
			delivery := &unstructured.Unstructured{}
			delivery.SetGroupVersionKind(tenancy.KustomizationKind)
			delivery.SetNamespace("dev-1")
			delivery.SetName("app")
			delivery.SetLabels(map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, v1alpha1.LabelFluxTenant: "dev"})
			there, reports := []client.Object{tenant, delivery}, &Reports{}
			var namespaces []*corev1.Namespace
			for i := range tc.namespaces {
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("dev-%d", i+1), Labels: map[string]string{v1alpha1.LabelTenant: "dev"}}}
				maps.Copy(ns.Labels, tc.labels)
				there, namespaces = append(there, ns), append(namespaces, ns)
				seen := tenant.DeepCopy()
				if tc.unseen {
					seen.Generation--
				}
				reports.Report(seen, ns.Name, nil)
			}
			base, reads := cluster(t, there...), 0
			isDelivery := func(list client.ObjectList) bool {
				return strings.HasPrefix(list.GetObjectKind().GroupVersionKind().Kind, tenancy.KustomizationKind.Kind)
			}
			live := interceptor.NewClient(base, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if isDelivery(list) {
						reads++
					}
					return c.List(ctx, list, options...)
				},
			})
			cached := interceptor.NewClient(base, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if isDelivery(list) && tc.behind {
						return nil
					}
					return c.List(ctx, list, options...)
				},
			})
			r := &Reconciler{Client: cached, APIReader: live, Now: time.Now, Profiles: oneProfile{}, Rules: enforced{}, Reports: reports}
			reconcile := func() {
				t.Helper()
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: named("dev")}); err != nil {
					t.Fatal(err)
				}
			}
			reconcile()
			for _, ns := range namespaces {
				if err := base.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil {
					t.Errorf("%s: namespace %s went first: %v", tc.reason, ns.Name, err)
				}
			}
			if err := base.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant); err != nil {
				t.Fatalf("%s: the Tenant is gone: %v", tc.reason, err)
			}
			if c := apimeta.FindStatusCondition(tenant.Status.Conditions, ConditionReady); c == nil || c.Message != tc.want && !strings.HasPrefix(c.Message, tc.want+";") {
				t.Errorf("%s: want the condition %q, got %v", tc.reason, tc.want, c)
			}
			if reads != tc.reads {
				t.Errorf("%s: want %d requests to the API server about Kustomizations, got %d", tc.reason, tc.reads, reads)
			}

			if err := base.Delete(t.Context(), delivery); err != nil {
				t.Fatal(err)
			}
			for _, ns := range namespaces {
				reports.Report(tenant, ns.Name, nil)
			}
			// Namespaces, then what comes after them.
			for range 2 {
				reconcile()
			}
			if err := base.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant); !apierrors.IsNotFound(err) {
				t.Errorf("%s: the Tenant stays when nothing is delivered any more: %v, %v", tc.reason, tenant.Status.Conditions, err)
			}
		})
	}
}

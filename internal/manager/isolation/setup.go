package isolation

import (
	"context"
	"fmt"
	"sync"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// indexTenant indexes namespaces by the tenant that any label names, and policies by the
	// tenant that the manager created them for.
	indexTenant = "isolation.tenant"
	// concurrent is the number of tenants that are reconciled at a time.
	concurrent = 4
)

// Setup adds the reconciler to a manager, from when the cluster serves a version of the kind. It
// returns an error if the manager refuses the controller, an index or a watch.
func (r *Reconciler) Setup(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Namespace{}, indexTenant, ofNamespace); err != nil {
		return fmt.Errorf("cannot index namespaces: %w", err)
	}
	var once sync.Once
	for _, kind := range tenancy.ClusterPolicyKinds() {
		start := func() (err error) {
			once.Do(func() { err = r.start(ctx, mgr, kind) })
			return err
		}
		if err := crdgate.StartWhenServed(mgr, start, kind); err != nil {
			return err
		}
	}
	return nil
}

// start adds the controller, which reads and writes one version of the kind.
func (r *Reconciler) start(ctx context.Context, mgr manager.Manager, kind schema.GroupVersionKind) error {
	r.kind = kind
	policy := &unstructured.Unstructured{}
	policy.SetGroupVersionKind(kind)
	if err := mgr.GetFieldIndexer().IndexField(ctx, policy, indexTenant, ofPolicy); err != nil {
		return fmt.Errorf("cannot index the policies of the cluster: %w", err)
	}
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("isolation").
		Watches(&corev1.Namespace{}, toTenants(ofNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.Tenant{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(tenantnamespace.SpecChanged)).
		Watches(profile, handler.EnqueueRequestsFromMapFunc(r.everybody), builder.WithPredicates(tenantnamespace.SpecChanged)).
		Watches(policy, toTenants(ofPolicy), builder.WithPredicates(predicate.Or[client.Object](tenantnamespace.SpecChanged, predicate.LabelChangedPredicate{}))).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter(), MaxConcurrentReconciles: concurrent, LogConstructor: tenantnamespace.LogConstructor(mgr.GetLogger(), "isolation", tenantnamespace.TenantByName)}).
		Complete(r)
}

// ofNamespace returns the tenant of a namespace.
func ofNamespace(o client.Object) []string {
	if tenant, ok := tenancy.TenantOf(o.GetLabels()); ok {
		return []string{tenant}
	}
	return nil
}

// ofPolicy returns the tenant for which the manager created a policy.
func ofPolicy(o client.Object) []string {
	if tenant := o.GetLabels()[v1alpha1.LabelTenant]; o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue {
		return []string{tenant}
	}
	return nil
}

// toTenants enqueues the tenants of an object. Each update is mapped for the old and the new
// object.
func toTenants(of client.IndexerFunc) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request { return requests(of(o)) })
}

// everybody returns the tenants of all namespaces and policies. The handler enqueues each of them
// once.
func (r *Reconciler) everybody(ctx context.Context, _ client.Object) []reconcile.Request {
	var namespaces corev1.NamespaceList
	policies := &unstructured.UnstructuredList{}
	policies.SetGroupVersionKind(r.kind)
	for _, list := range []client.ObjectList{&namespaces, policies} {
		// They are only read.
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list tenants")
		}
	}
	var tenants []string
	for i := range namespaces.Items {
		tenants = append(tenants, ofNamespace(&namespaces.Items[i])...)
	}
	for i := range policies.Items {
		tenants = append(tenants, ofPolicy(&policies.Items[i])...)
	}
	return requests(tenants)
}

func requests(tenants []string) []reconcile.Request {
	var requests []reconcile.Request
	for _, tenant := range tenants {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: tenant}})
	}
	return requests
}

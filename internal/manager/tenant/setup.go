package tenant

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// concurrent is the number of Tenants that are reconciled at a time.
	concurrent = 8
	// indexCreate indexes Tenants by the namespaces that they list.
	indexCreate = "spec.namespaces.create"
	// indexMade indexes the objects that the manager created for a Tenant: quotas in its
	// namespaces and cluster-scoped objects. A label selector would scan the objects of all
	// tenants.
	indexMade = "made-for"
	// reportBuffer is the size of the queue of reports.
	reportBuffer = 1024
)

// Setup adds the reconciler to a manager, after the namespace reconciler. Flux's CRDs may be
// installed after the manager starts. It returns an error if the manager refuses the
// controller, an index or a watch.
func (r *Reconciler) Setup(ctx context.Context, mgr manager.Manager) error {
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	reports := make(chan event.GenericEvent, reportBuffer)
	r.Reports.Changed = func(tenant string) {
		reports <- event.GenericEvent{Object: &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: tenant}}}
	}
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return tenants(ctx, mgr.GetClient())
	})
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("tenant").
		For(&v1alpha1.Tenant{}).
		Watches(&v1alpha1.Tenant{}, r.sameHosts(), builder.WithPredicates(hostsChanged)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return interested(ctx, mgr.GetClient(), o)
		}), builder.WithPredicates(namespaceChanged)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return selecting(ctx, mgr.GetClient(), o)
		}), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.ResourceQuota{}, byLabel(v1alpha1.LabelFluxTenant), builder.WithPredicates(shares)).
		Watches(&rbacv1.ClusterRole{}, byLabel(v1alpha1.LabelTenant)).
		Watches(&rbacv1.ClusterRoleBinding{}, byLabel(v1alpha1.LabelTenant)).
		Watches(profile, all, builder.WithPredicates(tenantnamespace.SpecChanged)).
		WatchesRawSource(source.Channel(reports, handler.Funcs{GenericFunc: gather})).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter(), MaxConcurrentReconciles: concurrent, LogConstructor: tenantnamespace.LogConstructor(mgr.GetLogger(), "tenant", tenantnamespace.TenantByName)}).
		Build(r)
	if err != nil {
		return err
	}
	for _, kind := range []schema.GroupVersionKind{tenancy.GitRepositoryKind, tenancy.OCIRepositoryKind, tenancy.KustomizationKind} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		if err := crdgate.Watch(mgr, c, u, byLabel(v1alpha1.LabelFluxTenant), syncChanged); err != nil {
			return err
		}
	}
	return nil
}

// index adds indexes to find the objects of one Tenant without a scan of the objects of all
// Tenants, of which there may be thousands.
func index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object client.Object
		name   string
		of     client.IndexerFunc
	}{
		{&v1alpha1.Tenant{}, indexCreate, func(o client.Object) []string {
			if t, ok := o.(*v1alpha1.Tenant); ok {
				return t.Spec.Namespaces.Create
			}
			return nil
		}},
		{&corev1.ResourceQuota{}, indexMade, madeFor(v1alpha1.LabelFluxTenant)},
		{&rbacv1.ClusterRole{}, indexMade, madeFor(v1alpha1.LabelTenant)},
		{&rbacv1.ClusterRoleBinding{}, indexMade, madeFor(v1alpha1.LabelTenant)},
	} {
		if err := indexer.IndexField(ctx, i.object, i.name, i.of); err != nil {
			return fmt.Errorf("cannot index %T: %w", i.object, err)
		}
	}
	return nil
}

// madeFor returns an index function whose value is the Tenant that a label of an object
// names, for objects that the manager created.
func madeFor(label string) client.IndexerFunc {
	return func(o client.Object) []string {
		tenant := o.GetLabels()[label]
		if tenant == "" || o.GetLabels()[tenancy.LabelManaged] != tenancy.ManagedValue {
			return nil
		}
		return []string{tenant}
	}
}

// interested returns the Tenants that a namespace belongs to, or that list the namespace.
func interested(ctx context.Context, c client.Reader, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	if tenant := o.GetLabels()[v1alpha1.LabelTenant]; tenant != "" {
		requests = append(requests, reconcile.Request{NamespacedName: named(tenant)})
	}
	var list v1alpha1.TenantList
	if err := c.List(ctx, &list, client.MatchingFields{indexCreate: o.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list tenants")
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: named(list.Items[i].Name)})
	}
	return requests
}

// selecting returns the Tenant of a namespace if the labels of the namespace decide which of the
// Tenant's quotas apply to it.
func selecting(ctx context.Context, c client.Reader, ns client.Object) []reconcile.Request {
	tenant := &v1alpha1.Tenant{}
	if err := c.Get(ctx, named(ns.GetLabels()[v1alpha1.LabelTenant]), tenant); err != nil {
		if !apierrors.IsNotFound(err) {
			ctrl.LoggerFrom(ctx).Error(err, "cannot read the tenant of a namespace", "namespace", ns.GetName())
		}
		return nil
	}
	if !slices.ContainsFunc(tenant.Spec.Quotas, func(q v1alpha1.TenantQuota) bool { return q.NamespaceSelector != nil }) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: named(tenant.Name)}}
}

func tenants(ctx context.Context, c client.Reader) []reconcile.Request {
	var list v1alpha1.TenantList
	if err := c.List(ctx, &list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list tenants")
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: named(list.Items[i].Name)})
	}
	return requests
}

// byLabel returns a request for the Tenant of an object that the manager created for it.
func byLabel(label string) handler.EventHandler {
	of := madeFor(label)
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		var requests []reconcile.Request
		for _, tenant := range of(o) {
			requests = append(requests, reconcile.Request{NamespacedName: named(tenant)})
		}
		return requests
	})
}

// namespaceChanged is a predicate that drops irrelevant changes of a namespace, such as
// annotations.
var namespaceChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*corev1.Namespace)
	after, ok2 := e.ObjectNew.(*corev1.Namespace)
	return ok1 && ok2 && (before.Labels[v1alpha1.LabelTenant] != after.Labels[v1alpha1.LabelTenant] ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(before.Status, after.Status))
}}

// shares is a predicate for parts of Tenants' quotas.
var shares = predicate.NewPredicateFuncs(func(o client.Object) bool {
	return o.GetLabels()[tenancy.LabelQuotaScope] == tenancy.QuotaScopeTenant
})

// gather delays the request for a report, so that the reports on several namespaces of one
// Tenant make one change of its status.
func gather(_ context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	q.AddAfter(reconcile.Request{NamespacedName: named(e.Object.GetName())}, requeueDelay/2)
}

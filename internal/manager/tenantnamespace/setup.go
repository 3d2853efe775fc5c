package tenantnamespace

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// concurrent is the number of namespaces that are reconciled at a time. Reconciliations wait
// for the API server and use little CPU time.
const concurrent = 8

// Setup adds the reconciler to a manager. Flux may be installed after the manager starts. It
// returns an error if the manager refuses the controller, an index or a watch.
func (r *Reconciler) Setup(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Namespace{}, IndexTenant, byTenant); err != nil {
		return fmt.Errorf("cannot index namespaces: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Tenant{}, IndexOwnerNamespace, ByOwnerNamespace); err != nil {
		return fmt.Errorf("cannot index tenants: %w", err)
	}
	toNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}}
	})
	toAll := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return r.all(ctx, mgr.GetClient())
	})
	toTenants := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return ofTenant(ctx, mgr.GetClient(), o.GetName())
	})
	// Each update is mapped for the old and the new object, so that this includes the
	// namespaces of previous owners.
	toOwners := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		var requests []reconcile.Request
		for _, namespace := range ByOwnerNamespace(o) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}})
		}
		return requests
	})
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("tenantnamespace").
		For(&corev1.Namespace{}, builder.WithPredicates(concerned())).
		Watches(&corev1.ServiceAccount{}, toNamespace, builder.WithPredicates(metadataChanged)).
		Watches(&rbacv1.RoleBinding{}, toNamespace, builder.WithPredicates(metadataChanged)).
		Watches(&corev1.ResourceQuota{}, toNamespace, builder.WithPredicates(specChanged)).
		Watches(&corev1.LimitRange{}, toNamespace, builder.WithPredicates(metadataChanged)).
		Watches(&networkingv1.NetworkPolicy{}, toNamespace, builder.WithPredicates(metadataChanged)).
		Watches(&v1alpha1.TenantParameters{}, toNamespace).
		Watches(&v1alpha1.Tenant{}, toTenants, builder.WithPredicates(tenantChanged)).
		Watches(&v1alpha1.Tenant{}, toOwners, builder.WithPredicates(SpecChanged)).
		Watches(profileObject(), toAll, builder.WithPredicates(SpecChanged)).
		Watches(definitions(), toAll, builder.WithPredicates(ofFlux, predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})).
		WatchesRawSource(source.Channel(r.ClassesChanged, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter(), MaxConcurrentReconciles: concurrent, LogConstructor: LogConstructor(mgr.GetLogger(), "tenantnamespace", TenantByNamespace(mgr.GetClient()))}).
		Build(r)
	if err != nil {
		return err
	}
	for _, kind := range tenancy.WorkloadKinds() {
		workload := &metav1.PartialObjectMetadata{}
		workload.SetGroupVersionKind(kind)
		if err := crdgate.Watch(mgr, c, workload, toNamespace, applierChanged); err != nil {
			return err
		}
	}
	for _, kind := range syncKinds {
		if err := crdgate.Watch(mgr, c, ofKind(kind), toNamespace, SpecChanged, managed); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(syncKinds, func(kind schema.GroupVersionKind) bool { return !crdgate.Serves(mgr, kind) }) {
		return nil
	}
	// Syncs that could not be created are retried once the cluster serves all kinds.
	return crdgate.StartWhenServed(mgr, func() error {
		return c.Watch(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			for _, request := range r.all(ctx, mgr.GetClient()) {
				queue.Add(request)
			}
			return nil
		}))
	}, syncKinds...)
}

func ofKind(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// byTenant is the index function of namespaces by tenant.
func byTenant(o client.Object) []string {
	if tenant := o.GetLabels()[v1alpha1.LabelTenant]; tenant != "" {
		return []string{tenant}
	}
	return nil
}

// ByOwnerNamespace returns the namespaces of the accounts that own a Tenant, for
// [IndexOwnerNamespace].
func ByOwnerNamespace(o client.Object) []string {
	if tenant, ok := o.(*v1alpha1.Tenant); ok {
		return tenancy.OwnerNamespaces(tenant)
	}
	return nil
}

// ofTenant returns the namespaces of a Tenant.
func ofTenant(ctx context.Context, c client.Reader, tenant string) []reconcile.Request {
	var list corev1.NamespaceList
	if err := c.List(ctx, &list, client.MatchingFields{IndexTenant: tenant}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the namespaces of a tenant")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
	}
	return requests
}

// managed is a predicate for objects that the manager created.
var managed = predicate.NewPredicateFuncs(func(o client.Object) bool {
	return o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue
})

// SpecChanged is a predicate for updates that change the spec of an object. After a lost watch, the cache reports the
// deletion of an object and the creation of another one with its name as one update. The generations of both may be equal,
// so SpecChanged also compares the UIDs.
var SpecChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
}}

// tenantChanged is a predicate that drops most changes of a Tenant's status.
var tenantChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*v1alpha1.Tenant)
	after, ok2 := e.ObjectNew.(*v1alpha1.Tenant)
	return ok1 && ok2 && (SpecChanged.Update(e) || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		(len(before.Status.Objects) > 0) != (len(after.Status.Objects) > 0) || tenancy.CapsuleNames(before) != tenancy.CapsuleNames(after) ||
		len(after.Spec.Sync) > 0 && !slices.Equal(before.Status.Namespaces, after.Status.Namespaces))
}}

// all returns every namespace that belongs or belonged to a tenant.
func (r *Reconciler) all(ctx context.Context, c client.Reader) []reconcile.Request {
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list namespaces")
		return nil
	}
	var requests []reconcile.Request
	for i := range namespaces.Items {
		if interesting(&namespaces.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespaces.Items[i].Name}})
		}
	}
	return requests
}

// interesting reports whether a namespace belongs or belonged to a tenant.
func interesting(o client.Object) bool {
	_, tenants := tenancy.TenantOf(o.GetLabels())
	_, labelled := o.GetLabels()[v1alpha1.LabelParameters]
	return tenants || labelled
}

// concerned is a predicate for namespaces that belong to a tenant, or did before the event,
// if their labels changed, they are being deleted, or the API server no longer knows which labels are the manager's.
func concerned() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return interesting(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return interesting(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if !interesting(e.ObjectOld) && !interesting(e.ObjectNew) {
				return false
			}
			return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
				!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) ||
				len(e.ObjectOld.GetManagedFields()) > len(e.ObjectNew.GetManagedFields()) || // the cache has the manager's only
				e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}

// specChanged is a predicate that drops changes of a quota's counts, which are frequent,
// unless a count is missing.
var specChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*corev1.ResourceQuota)
	after, ok2 := e.ObjectNew.(*corev1.ResourceQuota)
	return ok1 && ok2 && (!maps.Equal(before.Labels, after.Labels) || !tenancy.UpToDate(before, after) ||
		len(uncounted(after)) > len(uncounted(before)) || !after.DeletionTimestamp.IsZero())
}}

// applierChanged is a predicate for workloads that a sync of Flux applied, when they are
// created or deleted, or the labels that name the sync change.
var applierChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return len(tenancy.FluxLabels(e.Object.GetLabels())) > 0 },
	DeleteFunc: func(e event.DeleteEvent) bool { return len(tenancy.FluxLabels(e.Object.GetLabels())) > 0 },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(tenancy.FluxLabels(e.ObjectOld.GetLabels()), tenancy.FluxLabels(e.ObjectNew.GetLabels()))
	},
}

// metadataChanged is a predicate that drops the repeated events of a resync.
var metadataChanged = predicate.ResourceVersionChangedPredicate{}

// ofFlux is a predicate for the CRDs of Flux.
var ofFlux = predicate.NewPredicateFuncs(func(o client.Object) bool { return countedKinds[o.GetName()] })

package tenantnamespace

import (
	"context"
	"maps"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// concurrent is how many namespaces are worked on at a time: they wait for the
// API server, not for a processor.
const concurrent = 8

// Setup adds the reconciler to a manager.
func (r *Reconciler) Setup(mgr manager.Manager) error {
	toNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}}
	})
	toAll := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return r.all(ctx, mgr.GetClient())
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("tenantnamespace").
		For(&corev1.Namespace{}, builder.WithPredicates(concerned())).
		Watches(&corev1.ServiceAccount{}, toNamespace, builder.WithPredicates(metadataChanged)).
		Watches(&rbacv1.RoleBinding{}, toNamespace, builder.WithPredicates(metadataChanged)).
		Watches(&corev1.ResourceQuota{}, toNamespace, builder.WithPredicates(specChanged)).
		Watches(&v1alpha1.TenantParameters{}, toNamespace).
		Watches(profileObject(), toAll, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(definitions(), toAll, builder.WithPredicates(ofFlux, predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
		Complete(r)
}

// all returns every namespace that is a tenant's or was one.
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

// interesting says whether a namespace is a tenant's or was one.
func interesting(o client.Object) bool {
	_, tenants := tenancy.TenantOf(o.GetLabels())
	_, labelled := o.GetLabels()[v1alpha1.LabelParameters]
	return tenants || labelled
}

// concerned lets namespaces through that are, or were just now, tenants', when
// their labels changed or they are being deleted.
func concerned() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return interesting(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return interesting(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if !interesting(e.ObjectOld) && !interesting(e.ObjectNew) {
				return false
			}
			return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
				e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}

// specChanged leaves out a quota's counts, which move all the time, but for
// those that are missing.
var specChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*corev1.ResourceQuota)
	after, ok2 := e.ObjectNew.(*corev1.ResourceQuota)
	return ok1 && ok2 && (!maps.Equal(before.Labels, after.Labels) || !tenancy.UpToDate(before, after) ||
		len(uncounted(after)) > len(uncounted(before)))
}}

// metadataChanged leaves out what a resynchronisation repeats.
var metadataChanged = predicate.ResourceVersionChangedPredicate{}

// ofFlux lets the definitions of Flux's kinds through.
var ofFlux = predicate.NewPredicateFuncs(func(o client.Object) bool { return countedKinds[o.GetName()] })

package sourcegrant

import (
	"context"
	"maps"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// concurrent is the number of namespaces that are reconciled at a time.
const concurrent = 4

// Setup adds the reconciler to a manager. It starts the watches of Flux's sources, and of
// ExternalArtifacts, which Flux has since 2.7, once the cluster serves them. It returns an error if the manager refuses the controller, an
// index or a watch.
func (r *Reconciler) Setup(mgr manager.Manager) error {
	kinds := []schema.GroupVersionKind{artifactKind}
	for _, kind := range sourceKinds {
		kinds = append(kinds, sourceGroup.WithKind(kind))
	}
	return crdgate.StartWhenServed(mgr, func() error { return r.add(mgr) }, kinds...)
}

func (r *Reconciler) add(mgr manager.Manager) error {
	toOwn := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return request(o.GetNamespace())
	})
	toOwner := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		if owner := o.GetLabels()[labelFrom]; owner != "" {
			return request(owner)
		}
		// Another client's object, which may have had the name of a copy.
		return r.granting(ctx)
	})
	toGranting := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return r.granting(ctx)
	})
	b := ctrl.NewControllerManagedBy(mgr).
		Named("sourcegrant").
		Watches(&v1alpha1.SourceGrant{}, toOwn).
		Watches(&corev1.Namespace{}, toGranting, builder.WithPredicates(selectable)).
		Watches(&v1alpha1.Tenant{}, toGranting, builder.WithPredicates(tenantnamespace.SpecChanged)).
		Watches(object(artifactKind), toOwner).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter(), MaxConcurrentReconciles: concurrent})
	for _, kind := range sourceKinds {
		b = b.Watches(object(sourceGroup.WithKind(kind)), toOwn)
	}
	return b.Complete(r)
}

// selectable is a predicate for changes of namespaces that may change the selected
// namespaces.
var selectable = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
		e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
}}

func request(namespace string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: namespace}}}
}

// granting returns the namespaces that have grants.
func (r *Reconciler) granting(ctx context.Context) []reconcile.Request {
	var all v1alpha1.SourceGrantList
	if err := r.Client.List(ctx, &all); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list grants")
		return nil
	}
	var requests []reconcile.Request
	seen := map[string]bool{}
	for i := range all.Items {
		if owner := all.Items[i].Namespace; !seen[owner] {
			seen[owner] = true
			requests = append(requests, request(owner)...)
		}
	}
	return requests
}

package replication

import (
	"context"
	"maps"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	corev1 "k8s.io/api/core/v1"
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

// concurrent is the number of declarations that are reconciled at a time.
const concurrent = 4

// NewEngine returns the engine that the reconcilers of a manager share.
func NewEngine(mgr manager.Manager) *Engine {
	return &Engine{Clients: NewImpersonators(mgr.GetConfig(), mgr.GetRESTMapper()), Mapper: mgr.GetRESTMapper(), Now: time.Now}
}

// Setup adds the reconciler of Tenants to a manager. Call it after the setup of the namespace
// reconciler, because it uses that reconciler's index. It returns an error if the controller or
// one of its watches cannot be added.
func Setup(mgr manager.Manager, engine *Engine, profiles Profiles) error {
	tenants := &TenantReconciler{Client: mgr.GetClient(), Engine: engine, Profiles: profiles}
	return ctrl.NewControllerManagedBy(mgr).
		Named("replicate-tenant").
		For(&v1alpha1.Tenant{}, builder.WithPredicates(tenantnamespace.SpecChanged)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(ofNamespace), builder.WithPredicates(labelled)).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter(), MaxConcurrentReconciles: concurrent, LogConstructor: tenantnamespace.LogConstructor(mgr.GetLogger(), "replicate-tenant", tenantnamespace.TenantByName)}).
		Complete(tenants)
}

// SetupCapsule adds the reconcilers of Capsule's kinds to a manager, when the cluster serves these
// kinds. It returns an error if a controller, an index or a watch cannot be added.
func SetupCapsule(mgr manager.Manager, engine *Engine, profiles Profiles) error {
	for name, kind := range map[string]kindOfCapsule{"replicate-tenantresource": tenantResources, "replicate-globaltenantresource": globalTenantResources} {
		r := &CapsuleReconciler{Client: mgr.GetClient(), Engine: engine, Profiles: profiles, kind: kind}
		all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
			return r.all(ctx)
		})
		err := ctrl.NewControllerManagedBy(mgr).
			Named(name).
			For(kind.empty(), builder.WithPredicates(predicate.Or(tenantnamespace.SpecChanged, deleted, requested))).
			Watches(&corev1.Namespace{}, all, builder.WithPredicates(labelled)).
			Watches(&v1beta2.Tenant{}, all, builder.WithPredicates(predicate.LabelChangedPredicate{})).
			WithOptions(controller.Options{RateLimiter: backoff.RateLimiter(), MaxConcurrentReconciles: concurrent, LogConstructor: tenantnamespace.LogConstructor(mgr.GetLogger(), name, tenantnamespace.TenantByNamespace(mgr.GetClient()))}).
			Complete(r)
		if err != nil {
			return err
		}
	}
	return nil
}

// ofNamespace returns a request for the Tenant of a namespace.
func ofNamespace(_ context.Context, o client.Object) []reconcile.Request {
	tenant := o.GetLabels()[v1alpha1.LabelTenant]
	if tenant == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: tenant}}}
}

// labelled drops the events of namespaces that do not change which namespaces are selected.
var labelled = predicate.And(
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}},
	predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelTenant] != "" }),
)

// annotationRequested is the annotation by which clients of Capsule ask for a reconciliation, with
// the time as its value.
const annotationRequested = "reconcile.projectcapsule.dev/requestedAt"

// requested is a predicate for updates with another value of [annotationRequested].
var requested = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		at := e.ObjectNew.GetAnnotations()[annotationRequested]
		return at != "" && at != e.ObjectOld.GetAnnotations()[annotationRequested]
	},
}

// deleted is a predicate for updates that set the deletion timestamp.
var deleted = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
}

package profile

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A reconciliation of the profile reads all namespaces, and with thousands of namespaces
// some object changes all the time. So the reconciler collects changes for a pause, between
// minPause and maxPause, that is share times as long as the last reconciliation took. While
// tenants are added, the total time grows with their number and not with its square.
const (
	minPause = time.Second
	maxPause = 10 * time.Second
	share    = 50
)

// indexCredentials is the index of the RoleBindings that record credentials. They are few
// among the RoleBindings of all tenants.
const indexCredentials = "credentials"

func ofCredentials(o client.Object) []string {
	if _, ok := o.GetLabels()[tenancy.LabelCredentials]; ok {
		return []string{"true"}
	}
	return nil
}

// Setup adds the reconciler to a manager. All watched changes enqueue the one profile, and
// the queue merges them. Setup returns an error if the cache cannot add the index, or if the
// manager refuses the reconciler.
func (r *Reconciler) Setup(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &rbacv1.RoleBinding{}, indexCredentials, ofCredentials); err != nil {
		return fmt.Errorf("cannot index role bindings: %w", err)
	}
	toProfile := r.soonToProfile()
	failed := make(chan event.GenericEvent, 1)
	r.Failures.Changed = func() {
		select {
		case failed <- event.GenericEvent{Object: &v1alpha1.TenancyProfile{}}:
		default: // an event is already in the channel
		}
	}
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("profile").
		Watches(profile, &handler.EnqueueRequestForObject{}, builder.WithPredicates(tenantnamespace.SpecChanged)).
		// This watch includes changes of the status. They wait for the pause, so that the
		// reconciler's own writes do not trigger the next reconciliation at once.
		Watches(profile, toProfile).
		Watches(&corev1.Namespace{}, toProfile).
		Watches(&v1alpha1.TenantParameters{}, toProfile).
		WatchesRawSource(source.Channel(failed, toProfile)).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter()}).
		Complete(r)
}

// soonToProfile enqueues the profile after the pause. It does not delay a request that the
// queue already holds.
func (r *Reconciler) soonToProfile() handler.EventHandler {
	ask := func(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: v1alpha1.ProfileName}}, pauseAfter(time.Duration(r.took.Load())))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			ask(q)
		},
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			ask(q)
		},
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			ask(q)
		},
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			ask(q)
		},
	}
}

// pauseAfter returns the pause for a last reconciliation that took this long.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(share*took, minPause), maxPause)
}

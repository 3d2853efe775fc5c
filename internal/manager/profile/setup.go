package profile

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// minPause and maxPause bound for how long reasons to look at the profile are
// gathered, and share is the part of that time that a look may take: each is at all
// namespaces, and with thousands of them something changes all the time. So what is
// spent on looks while tenants arrive grows with their number and not with its square.
const (
	minPause = time.Second
	maxPause = 10 * time.Second
	share    = 50
)

// indexCredentials finds the RoleBindings of credentials, which are few, among those
// of all tenants.
const indexCredentials = "credentials"

func ofCredentials(o client.Object) []string {
	if _, ok := o.GetLabels()[tenancy.LabelCredentials]; ok {
		return []string{"true"}
	}
	return nil
}

// Setup adds the reconciler to a manager. Whatever happens is a reason to look
// at the one profile, and many reasons at once are one.
func (r *Reconciler) Setup(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &rbacv1.RoleBinding{}, indexCredentials, ofCredentials); err != nil {
		return fmt.Errorf("cannot index role bindings: %w", err)
	}
	toProfile := r.soonToProfile()
	failed := make(chan event.GenericEvent, 1)
	r.Failures.Changed = func() {
		select {
		case failed <- event.GenericEvent{Object: &v1alpha1.TenancyProfile{}}:
		default: // one is on its way
		}
	}
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("profile").
		Watches(profile, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// What was written may differ from what the cache had then, but each write
		// must not be the reason for the next look at once.
		Watches(profile, toProfile).
		Watches(&corev1.Namespace{}, toProfile).
		Watches(&v1alpha1.TenantParameters{}, toProfile).
		WatchesRawSource(source.Channel(failed, toProfile)).
		Complete(r)
}

// soonToProfile asks for a look at the profile after the pause. What is asked for
// already is not put off.
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

// pauseAfter is how long reasons are gathered when the last look took so long.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(share*took, minPause), maxPause)
}

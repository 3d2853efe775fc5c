package profile

import (
	"context"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Setup adds the reconciler to a manager. Whatever happens is a reason to look
// at the one profile, and many reasons at once are one.
func (r *Reconciler) Setup(mgr manager.Manager) error {
	toProfile := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: v1alpha1.ProfileName}}}
	})
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
		For(profile).
		Watches(&corev1.Namespace{}, toProfile).
		Watches(&v1alpha1.TenantParameters{}, toProfile).
		WatchesRawSource(source.Channel(failed, toProfile)).
		Complete(r)
}

package capsule

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/capsule"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// promoted returns the service accounts that owners have promoted, in the namespaces that the
// Tenant of Tenure lists, sorted.
func (r *TenantReconciler) promoted(ctx context.Context, s *state, configuration *v1beta2.CapsuleConfiguration) ([]capsule.Account, error) {
	if s.ours == nil || !capsule.Promotes(configuration, s.theirs) {
		return nil, nil
	}
	var all []capsule.Account
	for _, namespace := range s.ours.Status.Namespaces {
		var accounts corev1.ServiceAccountList
		if err := r.Client.List(ctx, &accounts, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("cannot list the service accounts of namespace %s: %w", namespace, err)
		}
		for i := range accounts.Items {
			if a := &accounts.Items[i]; promotes(a) && a.DeletionTimestamp.IsZero() {
				all = append(all, capsule.Account{Namespace: a.Namespace, Name: a.Name})
			}
		}
	}
	slices.SortFunc(all, func(a, b capsule.Account) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

func promotes(o client.Object) bool { return o.GetLabels()[capsule.LabelPromote] == "true" }

// promotion selects the events that promote a service account, or end that.
var promotion = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return promotes(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return promotes(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool { return promotes(e.ObjectOld) != promotes(e.ObjectNew) },
}

// tenantOfAccount enqueues the Tenant of a service account's namespace.
func tenantOfAccount(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		ns := &corev1.Namespace{}
		if err := c.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, ns); err != nil {
			if !apierrors.IsNotFound(err) {
				ctrl.LoggerFrom(ctx).Error(err, "cannot read the namespace of a promoted service account", "namespace", o.GetNamespace())
			}
			return nil
		}
		return requestFor(capsuleLabel(ns))
	})
}

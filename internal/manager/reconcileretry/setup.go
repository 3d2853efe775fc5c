package reconcileretry

import (
	"context"
	"strings"

	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	"github.com/tenure-dev/tenure/internal/manager/failureevents"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// concurrent is the maximum number of concurrent reconciliations.
const concurrent = 4

// Setup adds the reconciler to a manager; [failureevents.Index] must be called before. If the
// cluster does not serve the kind, the reconciler starts when the cluster serves it. Setup
// returns an error if the manager refuses the reconciler, for example because one of this
// name exists.
func (r *Reconciler) Setup(mgr manager.Manager) error {
	return crdgate.StartWhenServed(mgr, func() error { return r.add(mgr) }, r.Kind)
}

func (r *Reconciler) add(mgr manager.Manager) error {
	toObjects := handler.EnqueueRequestsFromMapFunc(r.waiting)
	return ctrl.NewControllerManagedBy(mgr).
		Named("ask-"+strings.ToLower(r.Kind.Kind)).
		For(failureevents.Object(r.Kind), builder.WithPredicates(predicate.NewPredicateFuncs(failed))).
		Watches(&rbacv1.RoleBinding{}, toObjects, builder.WithPredicates(predicate.NewPredicateFuncs(gives))).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter(), MaxConcurrentReconciles: concurrent, LogConstructor: tenantnamespace.LogConstructor(mgr.GetLogger(), "ask-"+strings.ToLower(r.Kind.Kind), tenantnamespace.TenantByNamespace(mgr.GetClient()))}).
		Complete(r)
}

// gives selects the RoleBindings that the manager or Flux wrote.
func gives(o client.Object) bool { return ours(o) || delivered(o) }

// failed selects the objects whose last attempt the API server refused.
func failed(o client.Object) bool {
	u, ok := o.(*unstructured.Unstructured)
	return ok && refused(u)
}

// waiting returns the objects that a RoleBinding may unblock: their account is a subject of
// the RoleBinding, and the API server refused their last attempt.
func (r *Reconciler) waiting(ctx context.Context, binding client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, account := range failureevents.Subjects(binding) {
		namespace, name, _ := strings.Cut(account, "/")
		if namespace == "" {
			continue // an invalid subject; an empty namespace would list all namespaces
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(r.Kind)
		if err := r.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list what an account applies")
			continue
		}
		for i := range list.Items {
			u := &list.Items[i]
			if applies, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName"); applies == name && refused(u) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(u)})
			}
		}
	}
	return requests
}

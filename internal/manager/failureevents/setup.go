package failureevents

import (
	"context"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// IndexSubject is the index of RoleBindings by the service accounts that they name, as
// NAMESPACE/NAME.
const IndexSubject = "subjects.serviceAccount"

// Object returns an empty unstructured object of a kind.
func Object(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// Index adds [IndexSubject] to the manager's cache. It must be called once, before the
// [Reconciler.Setup] of the first kind. It returns an error if the cache cannot add the
// index, for example because it exists.
func Index(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &rbacv1.RoleBinding{}, IndexSubject, Subjects); err != nil {
		return fmt.Errorf("cannot index role bindings: %w", err)
	}
	return nil
}

// Setup adds the reconciler to a manager; [Index] must be called before. If the cluster does
// not serve the kind, because Flux was installed without its controller, the reconciler
// starts when the cluster serves it. Setup returns an error if the manager refuses the
// reconciler, for example because one of this name exists.
func (r *Reconciler) Setup(mgr manager.Manager) error {
	return crdgate.StartWhenServed(mgr, func() error { return r.add(mgr) }, r.Kind)
}

func (r *Reconciler) add(mgr manager.Manager) error {
	// A new RoleBinding can add a tenant's namespace to the readers of a failure.
	toObjects := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.appliedAs(ctx, mgr.GetClient(), o)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("refusal-"+strings.ToLower(r.Kind.Kind)).
		For(Object(r.Kind)).
		Watches(&rbacv1.RoleBinding{}, toObjects).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter()}).
		Complete(r)
}

// Subjects returns the service accounts that a RoleBinding names, as NAMESPACE/NAME. It
// returns nil for an object of another kind.
func Subjects(o client.Object) []string {
	binding, ok := o.(*rbacv1.RoleBinding)
	if !ok {
		return nil
	}
	var accounts []string
	for _, s := range binding.Subjects {
		if s.Kind == rbacv1.ServiceAccountKind {
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return accounts
}

// appliedAs returns the Kustomizations or HelmReleases whose account a RoleBinding in
// another namespace names. It lists the namespaces of these accounts only: nearly all of the
// many RoleBindings name accounts of their own namespace, and cause no list.
func (r *Reconciler) appliedAs(ctx context.Context, c client.Reader, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, account := range Subjects(o) {
		namespace, name, _ := strings.Cut(account, "/")
		if namespace == "" || namespace == o.GetNamespace() {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(r.Kind)
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list what an account applies")
			continue
		}
		for i := range list.Items {
			k := &list.Items[i]
			if applies, _, _ := unstructured.NestedString(k.Object, "spec", "serviceAccountName"); applies == name {
				requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.GetNamespace(), Name: k.GetName()}})
			}
		}
	}
	return requests
}

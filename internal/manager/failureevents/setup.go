package failureevents

import (
	"context"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// IndexSubject finds RoleBindings by the service accounts that they name, as
// NAMESPACE/NAME.
const IndexSubject = "subjects.serviceAccount"

// Object is an object of a kind as this package reads it.
func Object(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// Index lets a manager find RoleBindings as [Reconciler] looks for them, once for
// all kinds.
func Index(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &rbacv1.RoleBinding{}, IndexSubject, Subjects); err != nil {
		return fmt.Errorf("cannot index role bindings: %w", err)
	}
	return nil
}

// Setup adds the reconciler to a manager, after [Index]. A kind that the cluster
// does not serve, since Flux was installed without its controller, is waited for.
func (r *Reconciler) Setup(mgr manager.Manager) error {
	return crdgate.StartWhenServed(mgr, func() error { return r.add(mgr) }, r.Kind)
}

func (r *Reconciler) add(mgr manager.Manager) error {
	// An account that gets its rights later is looked at again.
	toObjects := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.appliedAs(ctx, mgr.GetClient(), o)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("refusal-"+strings.ToLower(r.Kind.Kind)).
		For(Object(r.Kind)).
		Watches(&rbacv1.RoleBinding{}, toObjects).
		Complete(r)
}

// Subjects returns the service accounts that a RoleBinding names, as NAMESPACE/NAME;
// none for an object of another kind.
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

// appliedAs returns the objects that are applied as an account that a
// RoleBinding of another namespace names. Only the namespaces of these accounts are
// looked at: nearly all bindings name accounts of their own, and there are many.
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

package capsule

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// tenantOwners returns the TenantOwners, and none if the cluster does not serve the kind.
func tenantOwners(ctx context.Context, c client.Reader) ([]v1beta2.TenantOwner, error) {
	var owners v1beta2.TenantOwnerList
	if err := c.List(ctx, &owners); err != nil && !apimeta.IsNoMatchError(err) {
		return nil, fmt.Errorf("cannot list TenantOwners: %w", err)
	}
	return owners.Items, nil
}

// tenantOwner returns an empty TenantOwner with its kind.
func tenantOwner() client.Object {
	return &v1beta2.TenantOwner{TypeMeta: metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(), Kind: "TenantOwner"}}
}

// TenantOwnerReconciler writes the status of TenantOwners.
type TenantOwnerReconciler struct {
	// Client reads from a cache and writes to the API server.
	Client client.Client
}

// Reconcile writes the status of one TenantOwner if it differs. It returns an error if it
// cannot read the object or write the status.
func (r *TenantOwnerReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := &v1beta2.TenantOwner{}
	if err := r.Client.Get(ctx, request.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var tenants v1beta2.TenantList
	if err := r.Client.List(ctx, &tenants); err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot list Capsule's Tenants: %w", err)
	}
	before := o.DeepCopy()
	o.Status.ObservedGeneration, o.Status.Tenants = o.Generation, nil
	for i := range tenants.Items {
		if capsule.Selects(&tenants.Items[i], o) {
			o.Status.Tenants = append(o.Status.Tenants, tenants.Items[i].Name)
		}
	}
	slices.Sort(o.Status.Tenants)
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionTrue, Reason: reasonSucceeded, Message: "it owns the Tenants that select it", ObservedGeneration: o.Generation}
	if err := capsule.CheckOwner(o); err != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonFailed, "Tenants that select it are not changed until this is solved: "+shorten(err.Error())
	}
	apimeta.SetStatusCondition(&o.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(before.Status, o.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Client.Status().Patch(ctx, o, client.MergeFrom(before), client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("cannot write the status of TenantOwner %s: %w", o.Name, err)
	}
	return ctrl.Result{}, nil
}

// setup adds the reconciler to a manager of a cluster that serves TenantOwners.
func (r *TenantOwnerReconciler) setup(mgr manager.Manager) error {
	toAll := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		owners, err := tenantOwners(ctx, mgr.GetClient())
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list TenantOwners")
			return nil
		}
		var all []reconcile.Request
		for i := range owners {
			all = append(all, requestFor(owners[i].Name)...)
		}
		return all
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("capsule-tenant-owner").
		For(&v1beta2.TenantOwner{}, builder.WithPredicates(ownerChanged)).
		Watches(&v1beta2.Tenant{}, toAll, builder.WithPredicates(tenantnamespace.SpecChanged)).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter()}).
		Complete(r)
}

// ownerChanged leaves out the updates of a TenantOwner that change its status alone.
var ownerChanged = predicate.Or(tenantnamespace.SpecChanged, predicate.LabelChangedPredicate{})

package capsule

import (
	"context"
	"fmt"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reasonNotReplicated: the kind is stored, and nothing comes of it.
const reasonNotReplicated = "NotReplicated"

// replicationReconciler says on TenantResources and GlobalTenantResources that
// nothing is replicated.
type replicationReconciler struct {
	client client.Client
	// kind is an object of the kind.
	kind client.Object
}

// Reconcile writes the status of one object if it differs.
func (r *replicationReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := r.kind.DeepCopyObject().(client.Object)
	if err := r.client.Get(ctx, request.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := o.DeepCopyObject().(client.Object)
	var status *v1beta2.TenantResourceStatus
	switch o := o.(type) {
	case *v1beta2.TenantResource:
		status = &o.Status
	case *v1beta2.GlobalTenantResource:
		status = &o.Status.TenantResourceStatus
	}
	status.ObservedGeneration = o.GetGeneration()
	apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionFalse, Reason: reasonNotReplicated, ObservedGeneration: o.GetGeneration(),
		Message: "Tenure does not replicate objects yet; what Capsule has replicated stays as it is",
	})
	if equality.Semantic.DeepEqual(before, o) {
		return ctrl.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, o, client.MergeFrom(before), client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("cannot write the status of %s: %w", request.NamespacedName, err)
	}
	return ctrl.Result{}, nil
}

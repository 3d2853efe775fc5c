package capsule

import (
	"context"
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// VolumeReconciler gives a PersistentVolume the label with the Tenant of Capsule whose namespace
// claims it. The volume keeps the label when the claim is gone, so that the claims of other
// tenants, which get a selector from the policy tenure-defaults, do not select it.
type VolumeReconciler struct {
	// Client reads from a cache and writes to the API server.
	Client client.Client
}

// Reconcile labels one volume. It returns an error if it cannot read the volume or the namespace
// of its claim, or write the label.
func (r *VolumeReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	volume := &corev1.PersistentVolume{}
	if err := r.Client.Get(ctx, request.NamespacedName, volume); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	claim := volume.Spec.ClaimRef
	if claim == nil || !volume.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: claim.Namespace}, ns); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	tenant := capsuleLabel(ns)
	if tenant == "" || tenant == capsuleLabel(volume) {
		return ctrl.Result{}, nil
	}
	before := volume.DeepCopy()
	metav1.SetMetaDataLabel(&volume.ObjectMeta, v1alpha1.LabelCapsuleTenant, tenant)
	if err := r.Client.Patch(ctx, volume, client.MergeFrom(before), client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("cannot label PersistentVolume %s: %w", volume.Name, err)
	}
	return ctrl.Result{}, nil
}

func (r *VolumeReconciler) setup(mgr manager.Manager) error {
	ofNamespace := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, ns client.Object) []reconcile.Request {
		var volumes corev1.PersistentVolumeList
		// They are only read.
		if err := mgr.GetClient().List(ctx, &volumes, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list PersistentVolumes")
			return nil
		}
		var all []reconcile.Request
		for i := range volumes.Items {
			if claim := volumes.Items[i].Spec.ClaimRef; claim != nil && claim.Namespace == ns.GetName() {
				all = append(all, requestFor(volumes.Items[i].Name)...)
			}
		}
		return all
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("capsule-volume").
		For(&corev1.PersistentVolume{}).
		Watches(&corev1.Namespace{}, ofNamespace, builder.WithPredicates(ofCapsule)).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter()}).
		Complete(r)
}

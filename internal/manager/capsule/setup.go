package capsule

import (
	"context"
	"k8s.io/apimachinery/pkg/api/equality"
	"maps"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// concurrent is the maximum number of concurrent reconciles of Tenants.
const concurrent = 4

// Setup adds the reconcilers of this package to a manager. Package replication reconciles
// TenantResources and GlobalTenantResources. It returns an error if the manager refuses a
// controller, an index or a watch.
func Setup(mgr manager.Manager, profiles Profiles) error {
	tenants := &TenantReconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Profiles: profiles}
	if err := tenants.setup(mgr); err != nil {
		return err
	}
	configurations := &ConfigurationReconciler{Client: mgr.GetClient(), Profiles: profiles}
	if err := configurations.setup(mgr); err != nil {
		return err
	}
	volumes := &VolumeReconciler{Client: mgr.GetClient()}
	if err := volumes.setup(mgr); err != nil {
		return err
	}
	owners := &TenantOwnerReconciler{Client: mgr.GetClient()}
	if err := crdgate.StartWhenServed(mgr, func() error { return owners.setup(mgr) }, tenantOwner().GetObjectKind().GroupVersionKind()); err != nil {
		return err
	}
	return setupProxySettings(mgr)
}

func (r *TenantReconciler) setup(mgr manager.Manager) error {
	toTenant := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(capsuleLabel(o))
	})
	toAll := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var tenants v1beta2.TenantList
		if err := mgr.GetClient().List(ctx, &tenants); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list Capsule's Tenants")
			return nil
		}
		var all []reconcile.Request
		for _, t := range tenants.Items {
			all = append(all, requestFor(t.Name)...)
		}
		return all
	})
	// Annotations and labels of v1beta1 have the meaning of fields.
	changed := predicate.Or(tenantnamespace.SpecChanged, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("capsule-tenant").
		For(&v1beta2.Tenant{}, builder.WithPredicates(changed)).
		Watches(&v1alpha1.Tenant{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Namespace{}, toTenant, builder.WithPredicates(ofCapsule)).
		Watches(&corev1.ServiceAccount{}, tenantOfAccount(mgr.GetClient()), builder.WithPredicates(promotion)).
		Watches(&corev1.ResourceQuota{}, toTenant, builder.WithPredicates(customResourcesCounted)).
		Watches(&v1beta2.CapsuleConfiguration{}, toAll, builder.WithPredicates(changed)).
		Watches(profile(), toAll, builder.WithPredicates(tenantnamespace.SpecChanged)).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter(), MaxConcurrentReconciles: concurrent, LogConstructor: tenantnamespace.LogConstructor(mgr.GetLogger(), "capsule-tenant", tenantnamespace.TenantByName)}).
		Build(r)
	if err != nil {
		return err
	}
	if err := crdgate.Watch(mgr, c, tenantOwner(), toAll, ownerChanged); err != nil {
		return err
	}
	if err := crdgate.Watch(mgr, c, ruleStatus(), toTenant); err != nil {
		return err
	}
	for _, kind := range classKinds {
		class := &metav1.PartialObjectMetadata{}
		class.SetGroupVersionKind(kind)
		if err := crdgate.Watch(mgr, c, class, toAll, predicate.LabelChangedPredicate{}); err != nil {
			return err
		}
	}
	return nil
}

func (r *ConfigurationReconciler) setup(mgr manager.Manager) error {
	toDefault := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return requestFor(v1beta2.ConfigurationName)
	})
	// The status lists the names of the Tenants only, so updates do not matter.
	set := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("capsule-configuration").
		For(&v1beta2.CapsuleConfiguration{}).
		Watches(&v1beta2.Tenant{}, toDefault, builder.WithPredicates(set)).
		Watches(profile(), toDefault, builder.WithPredicates(tenantnamespace.SpecChanged)).
		Watches(&rbacv1.ClusterRoleBinding{}, toDefault, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == administratorBinding }))).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter()}).
		Build(r)
	if err != nil {
		return err
	}
	return crdgate.Watch(mgr, c, tenantOwner(), toDefault, tenantnamespace.SpecChanged)
}

// ofCapsule selects namespaces with Capsule's label, and updates that change labels or owners, or begin
// the deletion. A namespace that loses the label is selected once more.
var ofCapsule = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return capsuleLabel(e.Object) != "" },
	DeleteFunc: func(e event.DeleteEvent) bool { return capsuleLabel(e.Object) != "" },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return (capsuleLabel(e.ObjectOld) != "" || capsuleLabel(e.ObjectNew) != "") &&
			(!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || !equality.Semantic.DeepEqual(e.ObjectOld.GetOwnerReferences(), e.ObjectNew.GetOwnerReferences()) ||
				e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero())
	},
}

func capsuleLabel(o client.Object) string { return o.GetLabels()[v1alpha1.LabelCapsuleTenant] }

func requestFor(name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// profile returns an unstructured TenancyProfile, so that this controller shares the informer
// of the other controllers.
func profile() client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	return u
}

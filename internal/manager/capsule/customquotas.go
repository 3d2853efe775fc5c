package capsule

import (
	"context"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// countCustomResources counts the custom resources whose number an annotation of a Capsule Tenant
// limits, and writes the counts into annotations of this Tenant, as Capsule does. Kubernetes counts
// the objects, in the quota of each namespace.
func (r *TenantReconciler) countCustomResources(ctx context.Context, s *state) error {
	used := map[corev1.ResourceName]resource.Quantity{}
	annotations := map[string]corev1.ResourceName{}
	for key := range s.theirs.Annotations {
		if kind, ok := capsule.CustomResourceOf(key); ok {
			annotations[kind.Used] = kind.Counted
		}
	}
	if len(annotations) == 0 {
		return nil
	}
	for _, namespace := range s.ours.Status.Namespaces {
		quota := &corev1.ResourceQuota{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: tenancy.QuotaObjectName(s.ours, capsule.CustomQuota)}, quota)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot read the quota of custom resources in namespace %s: %w", namespace, err)
		}
		for name, quantity := range quota.Status.Used {
			sum := used[name]
			sum.Add(quantity)
			used[name] = sum
		}
	}
	before := s.theirs.DeepCopy()
	for key, counted := range annotations {
		count := used[counted]
		metav1.SetMetaDataAnnotation(&s.theirs.ObjectMeta, key, fmt.Sprint(count.Value()))
	}
	if equality.Semantic.DeepEqual(before.Annotations, s.theirs.Annotations) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, s.theirs, patch, client.FieldOwner(FieldManager)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot write how many custom resources Tenant %s has: %w", s.theirs.Name, err)
	}
	return nil
}

// customResourcesCounted selects quotas of custom resources, and their updates that change the number
// of objects.
var customResourcesCounted = predicate.And(
	predicate.NewPredicateFuncs(func(o client.Object) bool {
		return strings.HasSuffix(o.GetName(), strings.TrimPrefix(capsule.CustomQuota, "capsule"))
	}),
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.ResourceQuota)
		after, isQuota := e.ObjectNew.(*corev1.ResourceQuota)
		return ok && isQuota && !equality.Semantic.DeepEqual(before.Status.Used, after.Status.Used)
	}},
)

package capsule

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AnnotationReference on a namespace is the UID of the Tenant of Capsule that this package made
// an owner of the namespace. References that Capsule's controller made have no annotation.
const AnnotationReference = admission.CapsuleReference

// refer makes theirs an owner of each namespace of ours, because clients of Capsule read the tenant
// of a namespace from its owner. It removes theirs from the owners of namespaces that left the
// tenant: Kubernetes would delete these namespaces together with theirs. It returns descriptions of
// the namespaces whose owners the manager may not change.
func (r *TenantReconciler) refer(ctx context.Context, s *state) ([]string, error) {
	var namespaces corev1.NamespaceList
	// patchReference copies a namespace before it changes it.
	if err := r.Client.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list namespaces: %w", err)
	}
	var left []string
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		in := ns.Labels[v1alpha1.LabelTenant] == s.theirs.Name
		switch {
		case !ns.DeletionTimestamp.IsZero():
		case in && !ownedBy(ns, s.theirs) && slices.Contains(s.ours.Status.Namespaces, ns.Name):
			if err := r.patchReference(ctx, ns, func(ns *corev1.Namespace) {
				ns.OwnerReferences = append(ns.OwnerReferences, reference(s.theirs))
				metav1.SetMetaDataAnnotation(&ns.ObjectMeta, AnnotationReference, string(s.theirs.UID))
			}); client.IgnoreNotFound(err) != nil {
				return nil, err
			}
		case !in && referred(ns, s.theirs):
			err := r.unrefer(ctx, ns, s.theirs)
			if apierrors.IsForbidden(err) {
				left = append(left, "namespace "+ns.Name+" has left the tenant, but Kubernetes would delete it together with the Tenant: remove its owner reference to the Tenant")
				continue
			}
			if client.IgnoreNotFound(err) != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

// owned returns the namespaces of which a Tenant of Capsule is an owner. It reads them from the API
// server, because Kubernetes would delete a namespace that the cache does not show.
func (r *TenantReconciler) owned(ctx context.Context, theirs *v1beta2.Tenant) ([]corev1.Namespace, error) {
	var namespaces corev1.NamespaceList
	if err := r.APIReader.List(ctx, &namespaces); err != nil {
		return nil, fmt.Errorf("cannot list namespaces: %w", err)
	}
	return slices.DeleteFunc(namespaces.Items, func(ns corev1.Namespace) bool { return !ownedBy(&ns, theirs) }), nil
}

// disown removes the references to a Tenant of Capsule, also those that Capsule made, from the
// namespaces with Tenure's label or, if the Tenant is being deleted, from all of them. It reports
// whether references are left.
func (r *TenantReconciler) disown(ctx context.Context, theirs *v1beta2.Tenant, namespaces []corev1.Namespace) (left bool, err error) {
	for i := range namespaces {
		ns := &namespaces[i]
		if theirs.DeletionTimestamp.IsZero() && ns.Labels[v1alpha1.LabelTenant] != theirs.Name {
			left = true
			continue
		}
		if err := r.unrefer(ctx, ns, theirs); client.IgnoreNotFound(err) != nil {
			return false, err
		}
	}
	return left, nil
}

// unrefer removes the references to a Tenant of Capsule from a namespace.
func (r *TenantReconciler) unrefer(ctx context.Context, ns *corev1.Namespace, theirs *v1beta2.Tenant) error {
	return r.patchReference(ctx, ns, func(ns *corev1.Namespace) {
		ns.OwnerReferences = slices.DeleteFunc(ns.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == theirs.UID })
		delete(ns.Annotations, AnnotationReference)
	})
}

// reference returns a reference to a Tenant of Capsule as an owner.
func reference(tenant *v1beta2.Tenant) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1beta2.GroupVersion.String(), Kind: "Tenant", Name: tenant.Name, UID: tenant.UID}
}

// referred reports whether refer made a Tenant of Capsule an owner of a namespace.
func referred(ns *corev1.Namespace, tenant *v1beta2.Tenant) bool {
	return ns.Annotations[AnnotationReference] == string(tenant.UID)
}

func (r *TenantReconciler) patchReference(ctx context.Context, ns *corev1.Namespace, change func(*corev1.Namespace)) error {
	changed := ns.DeepCopy()
	change(changed)
	patch := client.MergeFromWithOptions(ns.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("cannot change the owners of namespace %s: %w", ns.Name, err)
	}
	return nil
}

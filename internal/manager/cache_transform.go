package manager

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/failureevents"
	"github.com/tenure-dev/tenure/internal/manager/sourcegrant"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// trimForCache keeps the cache small. It keeps the few fields of Flux objects that the manager
// reads, drops inventories, drops most of the managed fields, which can be half of an object, and
// shares equal values between objects.
func trimForCache(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(managedFields(object, o.GetManagedFields()))
	}
	if q, ok := object.(*corev1.ResourceQuota); ok && q.Name == tenancy.QuotaName {
		q.Status = onlyCounted(q.Status)
	}
	if o, ok := object.(*metav1.PartialObjectMetadata); ok && slices.Contains(tenancy.WorkloadKinds(), o.GroupVersionKind()) {
		o.Annotations, o.OwnerReferences, o.Labels = nil, nil, tenancy.FluxLabels(o.Labels)
	}
	dropForeign(object)
	common.share(object)
	object, err := fluxFields(object)
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.Object, _ = compact(u.Object).(map[string]any)
	}
	return object, err
}

// maxSubjects is the maximum number of subjects that the cache keeps of a RoleBinding that the
// manager did not create. A Tenant can list as many owners.
const maxSubjects = 1000

// dropForeign drops fields that the manager does not read from objects that it did not create: a
// tenant can create objects that take fifty times their size in memory.
func dropForeign(object any) {
	if o, ok := object.(metav1.Object); ok && o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue {
		return
	}
	switch o := object.(type) {
	case *corev1.ServiceAccount:
		o.Secrets, o.ImagePullSecrets = nil, nil
	case *networkingv1.NetworkPolicy:
		o.Spec = networkingv1.NetworkPolicySpec{}
	case *rbacv1.RoleBinding:
		if len(o.Subjects) > maxSubjects {
			o.Subjects = slices.Clone(o.Subjects[:maxSubjects])
		}
	}
}

// fluxFields keeps the fields of Flux objects that the manager reads.
func fluxFields(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok && u.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue {
		unstructured.RemoveNestedField(u.Object, "status", "inventory")
		return u, nil
	}
	object, err := sourcegrant.Trim(object)
	if err != nil {
		return nil, err
	}
	return failureevents.Trim(object)
}

// onlyCounted keeps the resources that a quota does not count yet. The manager does not read the
// others, which are two numbers for each kind.
func onlyCounted(status corev1.ResourceQuotaStatus) corev1.ResourceQuotaStatus {
	var left corev1.ResourceQuotaStatus
	for name, bound := range status.Hard {
		if _, counted := status.Used[name]; counted {
			continue
		}
		if left.Hard == nil {
			left.Hard = corev1.ResourceList{}
		}
		left.Hard[name] = bound
	}
	return left
}

// managedFields returns the entries that the manager reads: the manager's labels and annotations
// of a namespace, the managers and times of a RoleBinding, and the names of the field managers
// of other objects.
func managedFields(object any, entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	switch object.(type) {
	case *v1alpha1.Tenant, *metav1.PartialObjectMetadata:
		return nil
	case *corev1.Namespace:
		for _, e := range entries {
			if e.Manager == tenantnamespace.FieldManager && e.Subresource == "" {
				kept = append(kept, e)
			}
		}
		return kept
	}
	_, binding := object.(*rbacv1.RoleBinding)
	for _, e := range entries {
		if e.Operation != metav1.ManagedFieldsOperationApply {
			continue
		}
		switch {
		case binding && e.Manager == tenantnamespace.FieldManager:
			// Use the constant, so that the objects do not keep copies of the name.
			kept = append(kept, metav1.ManagedFieldsEntry{Manager: tenantnamespace.FieldManager, Operation: metav1.ManagedFieldsOperationApply, Time: e.Time})
		case binding:
			kept = append(kept, metav1.ManagedFieldsEntry{Manager: e.Manager, Operation: e.Operation, Time: e.Time})
		case e.Manager != tenantnamespace.FieldManager:
			kept = append(kept, metav1.ManagedFieldsEntry{Manager: e.Manager, Operation: e.Operation})
		}
	}
	return kept
}

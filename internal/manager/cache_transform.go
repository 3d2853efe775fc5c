package manager

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/failureevents"
	"github.com/tenure-dev/tenure/internal/manager/sourcegrant"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
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
	common.share(object)
	object, err := fluxFields(object)
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.Object, _ = compact(u.Object).(map[string]any)
	}
	return object, err
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
			// The name without its copy in each object.
			kept = append(kept, metav1.ManagedFieldsEntry{Manager: tenantnamespace.FieldManager, Operation: metav1.ManagedFieldsOperationApply, Time: e.Time})
		case binding:
			kept = append(kept, metav1.ManagedFieldsEntry{Manager: e.Manager, Operation: e.Operation, Time: e.Time})
		case e.Manager != tenantnamespace.FieldManager:
			kept = append(kept, metav1.ManagedFieldsEntry{Manager: e.Manager, Operation: e.Operation})
		}
	}
	return kept
}

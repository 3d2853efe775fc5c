package manager

import (
	"cmp"
	"maps"
	"slices"
	"strings"

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

// maxForeign is the maximum size of the labels, of the annotations and of the owner references that the cache
// keeps of a namespaced object that the manager did not create, in bytes. The manager reads a few labels and
// annotations of such objects. Kubernetes limits annotations to 256 KiB, and labels only by the whole object.
const maxForeign = 4 << 10

// maxSubjectBytes is the maximum size of the names of the subjects that the cache keeps of such a RoleBinding.
const maxSubjectBytes = 128 << 10

// dropForeign drops fields that the manager does not read from objects that it did not create: a
// tenant can create objects that take fifty times their size in memory.
func dropForeign(object any) {
	if o, ok := object.(metav1.Object); ok {
		if o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue {
			return
		}
		if o.GetNamespace() != "" {
			dropMetadata(o)
		}
	}
	switch o := object.(type) {
	case *corev1.ServiceAccount:
		o.Secrets, o.ImagePullSecrets = nil, nil
	case *networkingv1.NetworkPolicy:
		o.Spec = networkingv1.NetworkPolicySpec{}
	case *rbacv1.RoleBinding:
		if n := subjectsWithin(o.Subjects); n < len(o.Subjects) {
			o.Subjects = slices.Clone(o.Subjects[:n])
		}
	}
}

// subjectsWithin returns how many of the first subjects are within [maxSubjects] and [maxSubjectBytes].
func subjectsWithin(subjects []rbacv1.Subject) int {
	size := 0
	for i := range subjects {
		size += len(subjects[i].Name) + len(subjects[i].Namespace)
		if i == maxSubjects || size > maxSubjectBytes {
			return i
		}
	}
	return len(subjects)
}

// dropMetadata limits the metadata of an object to [maxForeign]. An object of ordinary size stays unchanged.
func dropMetadata(o metav1.Object) {
	if all := o.GetLabels(); sizeOf(all) > maxForeign {
		o.SetLabels(within(all))
	}
	if all := o.GetAnnotations(); sizeOf(all) > maxForeign {
		o.SetAnnotations(within(all))
	}
	size := 0
	for _, r := range o.GetOwnerReferences() {
		size += len(r.APIVersion) + len(r.Kind) + len(r.Name) + len(r.UID)
	}
	if size > maxForeign {
		o.SetOwnerReferences(nil)
	}
	// Few finalizers are allowed, but an object can repeat them.
	if all := o.GetFinalizers(); len(all) > 1 {
		slices.Sort(all)
		o.SetFinalizers(slices.Clone(slices.Compact(all)))
	}
}

func sizeOf(all map[string]string) int {
	size := 0
	for name, value := range all {
		size += len(name) + len(value)
	}
	return size
}

// readDomains are the domains of the labels and annotations of others' objects that the manager reads.
var readDomains = []string{v1alpha1.GroupVersion.Group, "fluxcd.io", "addon.fluxcd", "clastix.io", "projectcapsule.dev"}

// within returns labels or annotations of [maxForeign] bytes: first those that the manager may read, and of
// them the shortest, since all that the manager reads are short.
func within(all map[string]string) map[string]string {
	rank := func(name string) int {
		domain, _, _ := strings.Cut(name, "/")
		if slices.ContainsFunc(readDomains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }) {
			return 0
		}
		return 1
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(a)+len(all[a]), len(b)+len(all[b])), cmp.Compare(a, b))
	})
	kept, size := map[string]string{}, 0
	for _, name := range names {
		if size += len(name) + len(all[name]); size > maxForeign {
			break
		}
		kept[name] = all[name]
	}
	return kept
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

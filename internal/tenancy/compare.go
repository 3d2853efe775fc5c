package tenancy

import (
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UpToDate says whether an object is as it should be, so that it need not be
// applied. Labels, annotations and finalizers of others do not matter.
func UpToDate(existing, desired client.Object) bool {
	if !holds(existing.GetLabels(), desired.GetLabels()) || !holds(existing.GetAnnotations(), desired.GetAnnotations()) {
		return false
	}
	for _, f := range desired.GetFinalizers() {
		found := false
		for _, g := range existing.GetFinalizers() {
			found = found || f == g
		}
		if !found {
			return false
		}
	}
	switch want := desired.(type) {
	case *corev1.ServiceAccount:
		return true
	case *rbacv1.RoleBinding:
		have, ok := existing.(*rbacv1.RoleBinding)
		return ok && equality.Semantic.DeepEqual(have.RoleRef, want.RoleRef) && equality.Semantic.DeepEqual(have.Subjects, want.Subjects)
	case *v1alpha1.TenantParameters:
		have, ok := existing.(*v1alpha1.TenantParameters)
		return ok && equality.Semantic.DeepEqual(have.Spec, want.Spec)
	case *corev1.ResourceQuota:
		have, ok := existing.(*corev1.ResourceQuota)
		return ok && equality.Semantic.DeepEqual(have.Spec, want.Spec)
	}
	return false
}

// holds says whether all entries of want are in have.
func holds(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

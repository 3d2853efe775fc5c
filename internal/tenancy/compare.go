package tenancy

import (
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UpToDate reports whether an object already has the desired state, so that it need not be applied.
// It ignores the labels, annotations and finalizers of other field managers.
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
		return ok && have.Labels[LabelQuotaScope] == want.Labels[LabelQuotaScope] && equality.Semantic.DeepEqual(have.Spec, want.Spec)
	case *corev1.LimitRange:
		have, ok := existing.(*corev1.LimitRange)
		return ok && equality.Semantic.DeepEqual(have.Spec, want.Spec)
	case *networkingv1.NetworkPolicy:
		have, ok := existing.(*networkingv1.NetworkPolicy)
		return ok && equality.Semantic.DeepEqual(have.Spec, want.Spec)
	case *rbacv1.ClusterRole:
		have, ok := existing.(*rbacv1.ClusterRole)
		return ok && equality.Semantic.DeepEqual(have.Rules, want.Rules)
	case *rbacv1.ClusterRoleBinding:
		have, ok := existing.(*rbacv1.ClusterRoleBinding)
		return ok && equality.Semantic.DeepEqual(have.RoleRef, want.RoleRef) && equality.Semantic.DeepEqual(have.Subjects, want.Subjects)
	case *unstructured.Unstructured:
		have, ok := existing.(*unstructured.Unstructured)
		if ok && want.GetKind() == clusterPolicyKind {
			return equality.Semantic.DeepEqual(have.Object["spec"], want.Object["spec"])
		}
		return ok && sameSync(have, want)
	}
	return false
}

// sameSync compares the fields of Flux objects that the manager writes. Other fields have
// defaults or other field managers.
func sameSync(have, want *unstructured.Unstructured) bool {
	if have.GetKind() != want.GetKind() {
		return false
	}
	for _, field := range syncFields[want.GetKind()] {
		is, _, _ := unstructured.NestedFieldNoCopy(have.Object, "spec", field)
		should, _, _ := unstructured.NestedFieldNoCopy(want.Object, "spec", field)
		if !equality.Semantic.DeepEqual(is, should) {
			return false
		}
	}
	return true
}

// holds reports whether all entries of want are in have.
func holds(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

package localcluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// TestMissingOf covers a role that exists but has no rules yet.
func TestMissingOf(t *testing.T) {
	t.Parallel()
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}}}
	role := func(name string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	for _, tc := range []struct {
		reason string
		there  []runtime.Object
		want   string
	}{
		{"nothing is there", nil, "what ClusterRole view gives"},
		{"a role is not filled", []runtime.Object{role("view", rules), role("edit", nil), role("admin", rules), account}, "what ClusterRole edit gives"},
		{"there is no account", []runtime.Object{role("view", rules), role("edit", rules), role("admin", rules)}, "ServiceAccount default/default"},
		{"all is there", []runtime.Object{role("view", rules), role("edit", rules), role("admin", rules), account}, ""},
	} {
		if got := missingOf(t.Context(), fake.NewClientset(tc.there...)); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

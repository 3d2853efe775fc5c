package manager

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// made returns what the manager makes in a namespace, as the API server sends it:
// with nothing in common with what it sent before.
func made(namespace, tenant string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "each", Labels: map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, v1alpha1.LabelFluxTenant: tenant}}
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	return []client.Object{
		&corev1.ResourceQuota{ObjectMeta: *meta.DeepCopy(), Spec: corev1.ResourceQuotaSpec{Hard: one}},
		&corev1.LimitRange{ObjectMeta: *meta.DeepCopy(), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: "Container", Max: one.DeepCopy()}}}},
		&networkingv1.NetworkPolicy{ObjectMeta: *meta.DeepCopy(), Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}},
		&rbacv1.RoleBinding{ObjectMeta: *meta.DeepCopy(), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: tenancy.Role}, Subjects: []rbacv1.Subject{{Kind: "User", Name: tenant}}},
		&v1alpha1.TenantParameters{ObjectMeta: *meta.DeepCopy(), Spec: v1alpha1.TenantParametersSpec{
			Tenant: tenant, TenancyProfileSpec: v1alpha1.TenancyProfileSpec{PlatformNamespaces: []string{"flux-system"}},
		}},
	}
}

// pointers are where the maps and slices are that two objects have in common if they
// have anything in common.
func pointers(o client.Object) map[string]uintptr {
	found := map[string]uintptr{"labels": reflect.ValueOf(o.GetLabels()).Pointer()}
	switch o := o.(type) {
	case *corev1.ResourceQuota:
		found["spec"] = reflect.ValueOf(o.Spec.Hard).Pointer()
	case *corev1.LimitRange:
		found["spec"] = reflect.ValueOf(o.Spec.Limits).Pointer()
	case *networkingv1.NetworkPolicy:
		found["spec"] = reflect.ValueOf(o.Spec.PolicyTypes).Pointer()
	case *v1alpha1.TenantParameters:
		found["spec"] = reflect.ValueOf(o.Spec.PlatformNamespaces).Pointer()
	}
	return found
}

// TestShare holds that objects of one tenant have in common what is equal, and that
// none of them becomes another one by that.
func TestShare(t *testing.T) {
	t.Parallel()
	p := &valuePool{size: 100}
	shared := map[string][]client.Object{}
	for _, at := range [][2]string{{"a", "dev"}, {"b", "dev"}, {"c", "billing"}} {
		for i, o := range made(at[0], at[1]) {
			p.share(o)
			if diff := cmp.Diff(made(at[0], at[1])[i], o); diff != "" {
				t.Errorf("%T of namespace %s is another one now (-want +got):\n%s", o, at[0], diff)
			}
			shared[fmt.Sprintf("%T", o)] = append(shared[fmt.Sprintf("%T", o)], o)
		}
	}
	for kind, objects := range shared {
		if !maps.Equal(pointers(objects[0]), pointers(objects[1])) {
			t.Errorf("%s: two namespaces of one tenant have nothing in common", kind)
		}
		if pointers(objects[0])["labels"] == pointers(objects[2])["labels"] {
			t.Errorf("%s: two tenants have one map of labels", kind)
		}
	}
}

// TestShareForgets holds that a pool does not grow with what it sees, and goes on to
// know what it sees often.
func TestShareForgets(t *testing.T) {
	t.Parallel()
	p := &valuePool{size: 10}
	first := same(p, "often", []string{"often"})
	for i := range 1000 {
		same(p, fmt.Sprint(i), i)
		if again := same(p, "often", []string{"often"}); &again[0] != &first[0] {
			t.Fatalf("what is seen often is forgotten after %d others", i+1)
		}
		if n := len(p.newer) + len(p.older); n > 2*p.size {
			t.Fatalf("after %d values, %d are kept", i+1, n)
		}
	}
	if got := same(p, "often", 7); got != 7 {
		t.Errorf("a value of another type became %d", got)
	}
}

func TestCompact(t *testing.T) {
	t.Parallel()
	content := func() map[string]any {
		return map[string]any{
			"kind": "Kustomization", "spec": map[string]any{"prune": true, "dependsOn": []any{map[string]any{"name": "a"}}, "weight": int64(1)},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "message": "x"}}, "nothing": nil},
		}
	}
	u := &unstructured.Unstructured{Object: content()}
	before := u.DeepCopy()
	got, err := trimForCache(u)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("what is read is not what was sent (-want +got):\n%s", diff)
	}
}

// TestTrimQuota holds that of a quota of objects only what is not counted yet is kept,
// and that those of a Tenant stay whole, since they are divided by what is used.
func TestTrimQuota(t *testing.T) {
	t.Parallel()
	one, two := resource.MustParse("1"), resource.MustParse("2")
	status := corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{"count/a": one, "count/b": two}, Used: corev1.ResourceList{"count/a": one}}
	for _, tc := range []struct {
		reason, name string
		want         corev1.ResourceQuotaStatus
	}{
		{"a quota of objects", tenancy.QuotaName, corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{"count/b": two}}},
		{"a quota of a Tenant", tenancy.QuotaObjectName(&v1alpha1.Tenant{}, "all"), status},
	} {
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: tc.name}, Status: *status.DeepCopy()}
		if _, err := trimForCache(q); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, q.Status); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

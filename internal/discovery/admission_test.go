package discovery

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// longPolicy returns a policy with a number of expressions that look at parts of names, and its binding.
func longPolicy(name string, expressions int) []client.Object {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range expressions {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{
			Expression: fmt.Sprintf("!object.metadata.name.startsWith('other-%d') && object.spec.list.all(x, x.field != 'value-%d')", i, i),
		})
	}
	return []client.Object{p, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name},
	}}
}

// TestShapeOfLongPolicy checks that a policy is searched for words once and not for each namespace: a fleet has hundreds
// of namespaces.
func TestShapeOfLongPolicy(t *testing.T) {
	t.Parallel()
	b := &bounds{}
	if err := b.readAdmission(t.Context(), fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(longPolicy("long", 200)...).Build()); err != nil {
		t.Fatal(err)
	}
	tenant := &Tenant{Name: "team", Namespaces: []string{"team"}}
	ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	const most = 50
	if got := testing.Benchmark(func(b2 *testing.B) {
		b2.ReportAllocs()
		for b2.Loop() {
			b.shape(tenant, ns)
		}
	}).AllocsPerOp(); got > most {
		t.Errorf("the shape of a namespace takes %d allocations, want at most %d", got, most)
	}
}

// BenchmarkDiscover measures the discovery of 60 tenants with three namespaces each, beside 30 policies.
func BenchmarkDiscover(b *testing.B) {
	var objects []client.Object
	for i := range 30 {
		objects = append(objects, longPolicy(fmt.Sprintf("policy-%d", i), 30)...)
	}
	for i := range 60 {
		team := fmt.Sprintf("team-%d", i)
		for k := range 3 {
			in := fmt.Sprintf("%s-%d", team, k)
			objects = append(objects, namespace(in, map[string]string{Label: team}), account(in, team, map[string]string{Label: team}), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "reconciler"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
				Subjects: []rbacv1.Subject{
					{Kind: rbacv1.ServiceAccountKind, Namespace: in, Name: team}, {Kind: rbacv1.ServiceAccountKind, Namespace: team + "-0", Name: team},
				},
			})
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
	for b.Loop() {
		if _, err := Discover(b.Context(), c, Choice{}); err != nil {
			b.Fatal(err)
		}
	}
}

package capsule

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCustomResources checks that an annotation of a Tenant bounds custom resources, and that another
// one has the number of those in all of its namespaces, which Kubernetes counts.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	const limit, used = "quota.resources.capsule.clastix.io/leases.coordination.k8s.io_v1", "used.resources.capsule.clastix.io/leases.coordination.k8s.io_v1"
	c, admin := cluster(t)
	apply(t, admin, `{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: reef, annotations: {`+limit+`: "3"}}, spec: {owners: [{kind: User, name: alice}]}}`)
	tenant := ours(t, c, "reef", "bounded", func(*v1alpha1.Tenant) bool { return true })
	want := []v1alpha1.TenantQuota{{Name: "capsule-custom", Scope: "Tenant", Hard: v1alpha1.Quantities{"count/leases.coordination.k8s.io": resource.MustParse("3")}}}
	if diff := cmp.Diff(want, tenant.Spec.Quotas); diff != "" {
		t.Errorf("quotas (-want +got):\n%s", diff)
	}
	theirs(t, c, "reef", "without custom resources", func(tt *v1beta2.Tenant) bool { return tt.Annotations[used] == "0" })
	for _, name := range []string{"reef-a", "reef-b"} {
		apply(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+", labels: {tenure.dev/tenant: reef, capsule.clastix.io/tenant: reef}}}")
	}
	provision(t, c, "reef", metav1.ConditionTrue, "reef-a", "reef-b")
	for _, name := range []string{"reef-a", "reef-b"} {
		apply(t, admin, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a, namespace: "+name+"}}")
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenure-capsule-custom", Labels: map[string]string{v1alpha1.LabelCapsuleTenant: "reef"}},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/leases.coordination.k8s.io": resource.MustParse("3")}},
		}
		if err := c.Create(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
	}
	theirs(t, c, "reef", "with the custom resources of both namespaces", func(tt *v1beta2.Tenant) bool {
		return tt.Annotations[used] == "2" && tt.Annotations[limit] == "3"
	})
	apply(t, admin, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: b, namespace: reef-b}}")
	theirs(t, c, "reef", "with the one that was made later", func(tt *v1beta2.Tenant) bool { return tt.Annotations[used] == "3" })
}

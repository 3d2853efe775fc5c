package tenant

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReady combines the conditions of a Tenant of generation 2.
func TestReady(t *testing.T) {
	t.Parallel()
	is := func(kind string, status metav1.ConditionStatus, generation int64) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: kind, Message: kind, ObservedGeneration: generation}
	}
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	sync, objects := v1alpha1.TenantSpec{Sync: []v1alpha1.Sync{{}}}, v1alpha1.TenantSpec{Objects: []v1alpha1.ReplicatedObjects{{}}}
	both := v1alpha1.TenantSpec{Sync: sync.Sync, Objects: objects.Objects}
	for name, tc := range map[string]struct {
		reason     string
		spec       v1alpha1.TenantSpec
		conditions []metav1.Condition
		want       metav1.ConditionStatus
		because    string
	}{
		"all":                {"nothing is missing", both, []metav1.Condition{is("Provisioned", yes, 2), is("Synced", yes, 2), is("Replicated", yes, 2)}, yes, "Provisioned"},
		"not delivered":      {"what Flux could not apply is missing", both, []metav1.Condition{is("Provisioned", yes, 2), is("Synced", no, 2), is("Replicated", yes, 2)}, no, "Synced"},
		"not replicated":     {"what was refused is missing", both, []metav1.Condition{is("Provisioned", yes, 2), is("Synced", unknown, 2), is("Replicated", no, 2)}, no, "Replicated"},
		"being delivered":    {"nobody knows yet", both, []metav1.Condition{is("Provisioned", yes, 2), is("Synced", unknown, 2), is("Replicated", unknown, 2)}, unknown, "Synced"},
		"failure first":      {"a failure says more than a wait", both, []metav1.Condition{is("Provisioned", unknown, 2), is("Synced", no, 2)}, no, "Synced"},
		"the first failure":  {"the others often follow from it", both, []metav1.Condition{is("Provisioned", no, 2), is("Synced", no, 2)}, no, "Provisioned"},
		"not replicated yet": {"the condition is about the Tenant as it was", objects, []metav1.Condition{is("Provisioned", yes, 2), is("Replicated", yes, 1)}, unknown, ReasonProgressing},
		"never replicated":   {"a condition that is missing is not True", objects, []metav1.Condition{is("Provisioned", yes, 2)}, unknown, ReasonProgressing},
		"no sync":            {"a condition that is left from before does not count", objects, []metav1.Condition{is("Provisioned", yes, 2), is("Synced", no, 1), is("Replicated", yes, 2)}, yes, "Provisioned"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: tc.spec}
			got := ready(tenant, tc.conditions)
			if diff := cmp.Diff([]string{string(tc.want), tc.because}, []string{string(got.Status), got.Reason}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

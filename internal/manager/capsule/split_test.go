package capsule

import (
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/tenancy"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The isolation of a namespace does not count as the replacement of a policy of Capsule's,
// which would be deleted too early.
func TestSplitLeavesOutIsolation(t *testing.T) {
	t.Parallel()
	policy := func(name string) client.Object {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}}}
	}
	tenant := &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "solar"}}
	for reason, tc := range map[string]struct {
		objects []client.Object
		want    int
	}{
		"the isolation alone": {[]client.Object{policy(tenancy.IsolationName)}, 0},
		"one of the Tenant's": {[]client.Object{policy(tenancy.IsolationName), policy("tenure-0")}, 1},
	} {
		if _, ours := split(tc.objects, tenant); ours != tc.want {
			t.Errorf("%s: %d objects are Tenure's, want %d", reason, ours, tc.want)
		}
	}
}

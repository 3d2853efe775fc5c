package tenant

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMadeFor holds that the index of the cache finds what the labels of the API server
// select: quotas are divided by either.
func TestMadeFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		labels map[string]string
		want   []string
	}{
		{"made for a tenant", map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, v1alpha1.LabelFluxTenant: "dev"}, []string{"dev"}},
		{"a tenant's own quota", map[string]string{v1alpha1.LabelFluxTenant: "dev"}, nil},
		{"made for no tenant", map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}, nil},
		{"managed by somebody else", map[string]string{tenancy.LabelManaged: "other", v1alpha1.LabelFluxTenant: "dev"}, nil},
	} {
		o := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}}
		if diff := cmp.Diff(tc.want, madeFor(v1alpha1.LabelFluxTenant)(o)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

package tenancy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSelectedMetadata gives each namespace what its labels select.
func TestSelectedMetadata(t *testing.T) {
	t.Parallel()
	prod := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}, Spec: v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{
		Labels: map[string]string{"team": "dev"},
		Selected: []v1alpha1.SelectedMetadata{
			{Selector: prod, Labels: map[string]string{"team": "late", "tier": "gold", "pod-security.kubernetes.io/enforce": "restricted"}, Annotations: map[string]string{"a": "first"}},
			{Labels: map[string]string{"of": "{{ tenant.name }}-{{namespace}}"}, Annotations: map[string]string{"a": "second", "tenure.dev/x": "y"}},
			{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}, Labels: map[string]string{"wrong": "selector"}},
		},
	}}}
	for _, tc := range []struct {
		reason              string
		have                map[string]string
		labels, annotations map[string]string
	}{
		{"selected", map[string]string{"env": "prod"},
			map[string]string{"team": "dev", "tier": "gold", "of": "dev-web", "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}, map[string]string{"a": "first"}},
		{"not selected", nil,
			map[string]string{"team": "dev", "of": "dev-web", "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "latest"}, map[string]string{"a": "second"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			labels, annotations := tenancy.NamespaceMetadata(tenant, "web", tc.have)
			if diff := cmp.Diff(tc.labels, labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.annotations, annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
	_, _, err := tenancy.Metadata(tenant)
	for _, want := range []string{"selector of spec.namespaces.selected[2]", "annotation tenure.dev/x of spec.namespaces.selected[1]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the Tenant's problems are %v, without %s", err, want)
		}
	}
}

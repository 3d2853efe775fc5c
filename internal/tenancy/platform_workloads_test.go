package tenancy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestPlatformWorkloads lists what syncs of the platform applied, and not what the tenant did.
func TestPlatformWorkloads(t *testing.T) {
	t.Parallel()
	profile := &v1alpha1.TenancyProfileSpec{
		PlatformNamespaces: []string{"flux-system"},
		DelegatedSyncs:     []v1alpha1.DelegatedSync{{Tenant: "dev", Namespace: "flux-system", Name: "dev"}},
	}
	workload := func(kind, name, applier, namespace, sync string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{applier + "/namespace": namespace, applier + "/name": sync}},
		}
	}
	const kustomize, helm, resourceSet = "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "resourceset.fluxcd.controlplane.io"
	got := tenancy.PlatformWorkloads([]metav1.PartialObjectMetadata{
		workload("Job", "migrate", kustomize, "flux-system", "tenants"),
		workload("CronJob", "backup", kustomize, "flux-system", "tenants"),
		workload("StatefulSet", "store", helm, "flux-system", "store"),
		workload("Deployment", "agent", kustomize, "flux-system", "tenants"),
		workload("DaemonSet", "logs", resourceSet, "flux-system", "logs"),
		workload("Deployment", "delegated", kustomize, "flux-system", "dev"),
		workload("Deployment", "own", kustomize, "dev", "tenants"),
		workload("Deployment", "plain", "example.com", "flux-system", "tenants"),
	}, profile)
	if diff := cmp.Diff([]string{"CronJob/backup", "DaemonSet/logs", "Deployment/agent", "StatefulSet/store", "Job/migrate"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPodSelector reads the selectors that the rules compare with labels of tenants' objects.
func TestPodSelector(t *testing.T) {
	t.Parallel()
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	expression := func(operator string) map[string]any {
		return map[string]any{"matchExpressions": []any{map[string]any{"key": "app", "operator": operator}}}
	}
	for name, tc := range map[string]struct {
		reason string
		kind   string
		spec   map[string]any
		want   *metav1.LabelSelector
	}{
		"labels":   {"a Deployment", "Deployment", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}}, labels},
		"exists":   {"a label with any value", "DaemonSet", map[string]any{"selector": expression("Exists")}, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}},
		"negative": {"all Pods without a label, which would refuse each Pod of the tenant", "DaemonSet", map[string]any{"selector": expression("DoesNotExist")}, nil},
		"empty":    {"no label", "Deployment", map[string]any{"selector": map[string]any{}}, nil},
		"none":     {"a kind without a selector", "CronJob", map[string]any{}, nil},
		"job":      {"a Job's own, with its UID", "Job", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}}, nil},
		"manual":   {"a Job's that its manifest chooses", "Job", map[string]any{"manualSelector": true, "selector": map[string]any{"matchLabels": map[string]any{"app": "x"}}}, labels},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tenancy.PodSelector(&unstructured.Unstructured{Object: map[string]any{"kind": tc.kind, "spec": tc.spec}})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

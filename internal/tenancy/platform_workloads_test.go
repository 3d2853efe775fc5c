package tenancy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		workload("StatefulSet", "store", helm, "flux-system", "store"),
		workload("Deployment", "agent", kustomize, "flux-system", "tenants"),
		workload("DaemonSet", "logs", resourceSet, "flux-system", "logs"),
		workload("Deployment", "delegated", kustomize, "flux-system", "dev"),
		workload("Deployment", "own", kustomize, "dev", "tenants"),
		workload("Deployment", "plain", "example.com", "flux-system", "tenants"),
	}, profile)
	if diff := cmp.Diff([]string{"DaemonSet/logs", "Deployment/agent", "StatefulSet/store"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

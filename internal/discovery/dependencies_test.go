package discovery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestDependencies checks which objects of the platform a tenant can hold up.
func TestDependencies(t *testing.T) {
	t.Parallel()
	const objects = `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: ingress, namespace: flux-system}
spec: {dependsOn: [{name: crds}, {name: apps, namespace: orders}, {name: tenant-blue}]}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: tenant-blue, namespace: flux-system}
spec: {dependsOn: [{name: apps, namespace: orders}]}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: orders}
spec: {dependsOn: [{name: other, namespace: orders}]}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: monitoring, namespace: flux-system}
spec: {healthChecks: [{kind: Deployment, name: app, namespace: orders}, {kind: Deployment, name: own, namespace: flux-system}]}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: release, namespace: flux-system}
spec: {dependsOn: [{name: database, namespace: orders}]}
---
apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: teams, namespace: flux-system}
spec:
  dependsOn: [{kind: ConfigMap, name: ready, namespace: orders}, {kind: ResourceSet, name: infrastructure, namespace: flux-system}]
  resources: [{kind: ConfigMap, metadata: {name: c, annotations: {fluxcd.controlplane.io/copyFrom: flux-system/c}}}]
  resourcesTemplate: |
    kind: Secret
    metadata: {name: << inputs.name >>, annotations: {fluxcd.controlplane.io/copyFrom: orders/values}}
`
	read, err := flux.ReadObjects([]byte(objects))
	if err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder()
	for _, u := range read {
		builder.WithObjects(u)
	}
	tenants := []Tenant{
		{Name: "orders", Namespaces: []string{"orders"}},
		{Name: "blue", Repositories: []Repository{{Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "tenant-blue"}}}},
	}
	got, err := Dependencies(t.Context(), builder.Build(), tenants)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"HelmRelease flux-system/release depends on HelmRelease orders/database of tenant orders",
		"Kustomization flux-system/ingress depends on Kustomization flux-system/tenant-blue of tenant blue",
		"Kustomization flux-system/ingress depends on Kustomization orders/apps of tenant orders",
		"Kustomization flux-system/monitoring waits for Deployment orders/app of tenant orders",
		"ResourceSet flux-system/teams copies Secret orders/values of tenant orders",
		"ResourceSet flux-system/teams depends on ConfigMap orders/ready of tenant orders",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

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
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: tenants, namespace: flux-system}
spec: {wait: true}
status: {inventory: {entries: [{id: flux-system_tenant-blue_kustomize.toolkit.fluxcd.io_Kustomization, v: v1}, {id: orders_quota__ResourceQuota, v: v1}]}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: namespaces, namespace: flux-system}
spec: {wait: true}
status: {inventory: {entries: [{id: orders_quota__ResourceQuota, v: v1}, {id: flux-system_crds_kustomize.toolkit.fluxcd.io_Kustomization, v: v1}]}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: release, namespace: flux-system}
spec: {dependsOn: [{name: database, namespace: orders}]}
---
apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: teams, namespace: flux-system}
status: {inventory: {entries: [{id: blue-web_apps_kustomize.toolkit.fluxcd.io_Kustomization, v: v1}, {id: orders_team_source.toolkit.fluxcd.io_GitRepository, v: v1}]}}
spec:
  wait: true
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
		{Name: "blue", Namespaces: []string{"blue-web"}, Repositories: []Repository{{Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "tenant-blue"}}}},
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
		"Kustomization flux-system/tenants waits, by spec.wait, for objects of tenant blue, such as Kustomization flux-system/tenant-blue",
		"ResourceSet flux-system/teams copies Secret orders/values of tenant orders",
		"ResourceSet flux-system/teams depends on ConfigMap orders/ready of tenant orders",
		"ResourceSet flux-system/teams waits, by spec.wait, for objects of tenants blue, orders, such as Kustomization blue-web/apps",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

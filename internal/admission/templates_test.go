package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTemplates checks that a tenant gets no objects with the labels of the platform's objects by way of a
// template, from which a controller makes them: the controller may set these labels.
func TestTemplates(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	const (
		byPlatform = "labels: {app: x, kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}"
		byManager  = "labels: {app: x, tenure.dev/managed-by: manager}"
		byTenant   = "labels: {app: x, kustomize.toolkit.fluxcd.io/name: own, kustomize.toolkit.fluxcd.io/namespace: hostile-own}"
		delegated  = "labels: {app: x, kustomize.toolkit.fluxcd.io/name: delegated, kustomize.toolkit.fluxcd.io/namespace: flux-system}"
		containers = "containers: [{name: x, image: x}]"
		selector   = "selector: {matchLabels: {app: x}}"
		claim      = "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"
		forged     = "must not say in the labels of its templates"
	)
	workload := func(kind, labels string) string {
		return object("apps/v1", kind, selector+", template: {metadata: {"+labels+"}, spec: {"+containers+"}}")
	}
	cronJob := func(job, pod string) string {
		return object("batch/v1", "CronJob", "schedule: '@daily', jobTemplate: {metadata: {"+job+"}, spec: {template: {metadata: {"+pod+"}, spec: {restartPolicy: Never, "+containers+"}}}}")
	}
	for _, tc := range []struct{ reason, manifest, want string }{
		{"the ReplicaSets and Pods of a Deployment", workload("Deployment", byPlatform), forged},
		{"the Pods of a DaemonSet, as the manager's", workload("DaemonSet", byManager), forged},
		{"the Jobs of a CronJob, which the parameters would list", cronJob(byPlatform, "labels: {app: x}"), forged},
		{"the Pods of these Jobs", cronJob("labels: {app: x}", byManager), forged},
		{"a PodTemplate", "{apiVersion: v1, kind: PodTemplate, metadata: {name: x, namespace: apps}, template: {metadata: {" + byPlatform + "}, spec: {" + containers + "}}}", forged},
		{"the claims of a StatefulSet", object("apps/v1", "StatefulSet", selector+", serviceName: x, template: {metadata: {labels: {app: x}}, spec: {"+containers+"}}, volumeClaimTemplates: [{metadata: {name: d, "+byPlatform+"}, "+claim+"}]"), forged},
		{"the claim of a Pod's volume", object("v1", "Pod", containers+", volumes: [{name: d, ephemeral: {volumeClaimTemplate: {metadata: {"+byManager+"}, "+claim+"}}}]"), forged},
		{"the claim of a volume of a Deployment's Pods", object("apps/v1", "Deployment", selector+", template: {metadata: {labels: {app: x}}, spec: {"+containers+", volumes: [{name: d, ephemeral: {volumeClaimTemplate: {metadata: {"+byManager+"}, "+claim+"}}}]}}"), forged},
		{"the HelmChart of a HelmRelease", object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "interval: 5m, timeout: 1m, serviceAccountName: hostile, chart: {metadata: {"+byPlatform+"}, spec: {chart: x, sourceRef: {kind: HelmRepository, name: x}}}"), forged},
		{"the ExternalArtifacts of an ArtifactGenerator", object("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator", "commonMetadata: {"+byManager+"}, sources: [{alias: a, kind: GitRepository, name: a}], artifacts: [{name: a, copy: [{from: '@a/**', to: '@artifact/'}]}]"), forged},
		{"labels of a sync of its own", workload("Deployment", byTenant), ""},
		{"labels of the tenant's delegated sync", workload("Deployment", delegated), ""},
		{"a CronJob without labels", cronJob("labels: {app: x}", "labels: {app: x}"), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			check(t, tenant.Create(t.Context(), parse(t, in("hostile-own", tc.manifest)), client.DryRunAll), tc.want)
		})
	}
	t.Run("a template that has had the labels", func(t *testing.T) {
		t.Parallel()
		old := parse(t, in("hostile-own", strings.Replace(workload("Deployment", byPlatform), "name: x,", "name: labelled-before,", 1)))
		if err := admin.Create(t.Context(), old.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		check(t, tenant.Patch(t.Context(), old, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)), client.DryRunAll), "")
	})
}

// largeNamespace returns the manifests of a namespace in which an update costs the rules more than a creation: with
// many workloads of the platform, and with a list of pull policies.
func largeNamespace() string {
	var workloads []string
	for i := range 256 {
		workloads = append(workloads, fmt.Sprintf("Job/migrate-%d", i))
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: hostile-large, labels: {tenure.dev/tenant: hostile, tenure.dev/parameters: "true"}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: hostile-large}
spec:
  tenant: hostile
  platformNamespaces: [flux-system]
  platformAccounts: [flux-system/kustomize-controller]
  platformWorkloads: [%s]
  tenants: {workloads: {images: {pullPolicies: [Always]}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: hostile, namespace: hostile-large}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: hostile, namespace: hostile}]
`, strings.Join(workloads, ", "))
}

// TestLargeObjects checks that Kubernetes can take its finalizer off an object that a tenant could create, however large
// the object is. The API server limits what a policy may cost, and a policy that costs too much refuses the
// request of every user: the namespace could not be deleted.
func TestLargeObjects(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	collector := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:generic-garbage-collector", Groups: []string{"system:masters"}})
	makeAll(t, admin, strings.Split(largeNamespace(), "---\n"))
	metadata := "metadata: {name: NAME, namespace: hostile-large, finalizers: [foregroundDeletion]"
	many := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ", ")
	}
	descending := func(from, to int) (all []int) {
		for ; from >= to; from-- {
			all = append(all, from)
		}
		return all
	}
	containers := "{containers: [" + many(1000, "{name: c%d, image: x, imagePullPolicy: Always}") + "]}"
	for _, tc := range []struct {
		reason string
		// manifest is the manifest of an object of a size; the tenant creates the largest one that it may.
		manifest func(size int) string
		sizes    []int
	}{
		{"a Pod with many containers", func(int) string {
			return "{apiVersion: v1, kind: Pod, " + metadata + "}, spec: " + containers + "}"
		}, []int{1000}},
		{"a Deployment whose Pods have many containers", func(int) string {
			return "{apiVersion: apps/v1, kind: Deployment, " + metadata + "}, spec: {replicas: 0, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: " + containers + "}}}"
		}, []int{1000}},
		{"a Pod with as many annotations as it may have", func(size int) string {
			return "{apiVersion: v1, kind: Pod, " + metadata + ", annotations: {" + many(size, strings.Repeat("x", 200)+"/"+strings.Repeat("a", 50)+"%d: x") + "}}, spec: {containers: [{name: x, image: x, imagePullPolicy: Always}]}}"
		}, descending(260, 180)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			var large *unstructured.Unstructured
			testwait.For(t, "Kubernetes to make the namespace's account", patience, func() (bool, string) {
				var err error
				for _, size := range tc.sizes {
					large = parse(t, strings.Replace(tc.manifest(size), "NAME", strings.ReplaceAll(strings.ToLower(tc.reason), " ", "-"), 1))
					if err = tenant.Create(t.Context(), large); err == nil {
						return true, ""
					}
				}
				return false, fmt.Sprintf("%.400s", err)
			})
			check(t, collector.Patch(t.Context(), large, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)), client.DryRunAll), "")
		})
	}
}

package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// platformMade are workloads in a tenant's namespace: those of the platform's syncs, of the
// tenant's sync, and of nobody's.
const platformMade = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: agent, namespace: worked, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}, spec: SPEC}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store, namespace: worked, labels: {helm.toolkit.fluxcd.io/name: store, helm.toolkit.fluxcd.io/namespace: flux-system}}
spec: {selector: {matchLabels: {app: x}, matchExpressions: [{key: tier, operator: NotIn, values: [own]}]}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: x, image: x}]}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: logs, namespace: worked, labels: {resourceset.fluxcd.controlplane.io/name: logs, resourceset.fluxcd.controlplane.io/namespace: flux-system}}, spec: SPEC}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: agent, namespace: worked, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: agent}, maxReplicas: 2}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: backup, namespace: worked, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, namespace: worked, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: manual, namespace: worked, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {manualSelector: true, selector: {matchLabels: {app: manual}}, template: {metadata: {labels: {app: manual}}, spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: backup-29384756, namespace: worked}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: app, namespace: worked, labels: {kustomize.toolkit.fluxcd.io/name: app, kustomize.toolkit.fluxcd.io/namespace: worked}}, spec: SPEC}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: own, namespace: worked}, spec: SPEC}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: worked}
spec: {selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}, spec: {containers: [{name: x, image: x}]}}}
`

// TestPlatformWorkloadsAreListed checks that the parameters of a namespace list the platform's
// workloads while they are there, and no others.
func TestPlatformWorkloadsAreListed(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, namespace("worked", v1alpha1.LabelFluxTenant, "worked"))
	governed(t, admin, "worked", "worked")
	listed := func(reason string, want ...string) {
		t.Helper()
		testwait.For(t, reason, patience, func() (bool, string) {
			p := &v1alpha1.TenantParameters{}
			err := admin.Get(t.Context(), client.ObjectKey{Namespace: "worked", Name: v1alpha1.ParametersName}, p)
			return err == nil && slices.Equal(p.Spec.PlatformWorkloads, want), fmt.Sprintf("the parameters list %q, want %q: %v", p.Spec.PlatformWorkloads, want, err)
		})
	}
	const spec = `{selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: x, image: x}]}}}`
	create(t, admin, strings.ReplaceAll(platformMade, "SPEC", spec))
	selected := func(reason string, want ...string) {
		t.Helper()
		testwait.For(t, reason, patience, func() (bool, string) {
			p := &v1alpha1.TenantParameters{}
			err := admin.Get(t.Context(), client.ObjectKey{Namespace: "worked", Name: v1alpha1.ParametersName}, p)
			var got []string
			for i := range p.Spec.PlatformSelectors {
				got = append(got, metav1.FormatLabelSelector(&p.Spec.PlatformSelectors[i]))
			}
			return err == nil && slices.Equal(got, want), fmt.Sprintf("the parameters have the selectors %q, want %q: %v", got, want, err)
		})
	}
	listed("the workloads of the platform's syncs to be listed", "CronJob/backup", "DaemonSet/logs", "Deployment/agent", "HorizontalPodAutoscaler/agent", "StatefulSet/store", "Job/manual", "Job/migrate")

	selected("each selector once", "app=manual", "app=x", "app=x,tier notin (own)")

	of := func(apiVersion, kind, name string) client.Object {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(apiVersion)
		u.SetKind(kind)
		u.SetNamespace("worked")
		u.SetName(name)
		return u
	}
	for _, o := range []client.Object{of("apps/v1", "StatefulSet", "store"), of("batch/v1", "CronJob", "backup"), of("batch/v1", "Job", "migrate"), of("autoscaling/v2", "HorizontalPodAutoscaler", "agent")} {
		if err := admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	merge(t, admin, of("apps/v1", "Deployment", "agent"), `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/namespace":"worked"}}}`)
	merge(t, admin, of("apps/v1", "Deployment", "own"), `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"tenants","kustomize.toolkit.fluxcd.io/namespace":"flux-system"}}}`)
	listed("what is deleted, or the tenant's now, to be listed no more", "DaemonSet/logs", "Deployment/own", "Job/manual")
	selected("the selector of what is deleted to be left out", "app=manual", "app=x")
}

package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// adopting are workloads in a namespace of no tenant, and objects without a controller that fit them, before
// the workloads and after them. Controllers delete some of those that they take: a finalizer keeps them.
const (
	adopting = `
{apiVersion: v1, kind: Namespace, metadata: {name: adopting}}
---
{apiVersion: v1, kind: Pod, metadata: {name: store-0, namespace: adopting, finalizers: [example.com/kept], labels: {app: store}}, spec: SPEC}
---
{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: store, namespace: adopting, finalizers: [example.com/kept], labels: {app: store}}, revision: 1, data: {spec: {}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: agent, namespace: adopting}, spec: {replicas: 0, selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: SPEC}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: logs, namespace: adopting}, spec: {updateStrategy: {type: OnDelete}, selector: {matchLabels: {app: logs}}, template: {metadata: {labels: {app: logs}}, spec: SPEC}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: store, namespace: adopting}, spec: {serviceName: store, updateStrategy: {type: OnDelete}, selector: {matchLabels: {app: store}}, template: {metadata: {labels: {app: store}}, spec: SPEC}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: migrate, namespace: adopting}, spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: manual, namespace: adopting}, spec: {suspend: true, manualSelector: true, selector: {matchLabels: {app: manual}}, template: {metadata: {labels: {app: manual}}, spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}}
`
	adopted = `
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: x, namespace: adopting, finalizers: [example.com/kept], labels: {app: agent}}, spec: {replicas: 0, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: SPEC}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: logs, namespace: adopting, finalizers: [example.com/kept], labels: {app: logs}}, spec: SPEC}
---
{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: logs, namespace: adopting, finalizers: [example.com/kept], labels: {app: logs}}, revision: 1, data: {spec: {}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: migrate, namespace: adopting, finalizers: [example.com/kept], labels: {batch.kubernetes.io/controller-uid: UID}}, spec: SPEC}
---
{apiVersion: v1, kind: Pod, metadata: {name: manual, namespace: adopting, finalizers: [example.com/kept], labels: {app: manual}}, spec: SPEC}
`
)

// TestAdopted shows what Kubernetes' controllers take for their own, which the rule tenure-managed keeps
// tenants from making: see TestPlatformWorkloads.
func TestAdopted(t *testing.T) {
	t.Parallel()
	admin, _, _ := cluster(t)
	replace := strings.NewReplacer("SPEC", "{containers: [{name: x, image: x}]}").Replace
	makeAll(t, admin, strings.Split(replace(adopting), "---\n"))
	find := func(apiVersion, kind, name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(apiVersion)
		u.SetKind(kind)
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "adopting", Name: name}, u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	makeAll(t, admin, strings.Split(strings.ReplaceAll(replace(adopted), "UID", string(find("batch/v1", "Job", "migrate").GetUID())), "---\n"))
	for _, tc := range []struct{ apiVersion, kind, name, by string }{
		{"apps/v1", "ReplicaSet", "x", "Deployment agent"},
		{"v1", "Pod", "logs", "DaemonSet logs"},
		{"v1", "Pod", "store-0", "StatefulSet store"},
		{"apps/v1", "ControllerRevision", "logs", "DaemonSet logs"},
		{"apps/v1", "ControllerRevision", "store", "StatefulSet store"},
		{"v1", "Pod", "migrate", "Job migrate"},
		{"v1", "Pod", "manual", "Job manual"},
	} {
		testwait.For(t, tc.by+" to take "+tc.kind+" "+tc.name, patience, func() (bool, string) {
			owner := metav1.GetControllerOf(find(tc.apiVersion, tc.kind, tc.name))
			return owner != nil && owner.Kind+" "+owner.Name == tc.by, fmt.Sprint(owner)
		})
	}
}

package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workloadsNamespace is a tenant's namespace.
const workloadsNamespace = `
apiVersion: v1
kind: Namespace
metadata: {name: NAME, labels: {tenure.dev/tenant: NAME, tenure.dev/parameters: "true"}}
`

// workloadsRights are the rights of the user, and a priority class that tenants may have.
const workloadsRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: user}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: user}]
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: standard}
value: 1000
`

// workloadsLimits are the limits of the workloads in a namespace.
const workloadsLimits = `
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: NAME}
spec:
  tenant: NAME
  tenants:
    workloads:
      images: {registries: ["registry.example.com/NAME/*", "registry.example.com/shared/**"], pullPolicies: [Always]}
      priorityClasses: {allowed: [standard]}
      runtimeClasses: {allowed: [sandbox]}
      nodes: {selector: {pool: NAME}}
      tolerations: [dedicated]
`

// workloadsPod is the spec of a Pod that keeps the limits, and is never scheduled.
const workloadsPod = `
nodeSelector: {pool: NAME}
schedulingGates: [{name: example.com/never}]
priorityClassName: standard
tolerations: [{key: dedicated, operator: Exists}]
containers:
- {name: app, image: "registry.example.com/NAME/app:1", imagePullPolicy: Always, resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 16Mi}}}
- {name: sidecar, image: "registry.example.com/shared/tools/sidecar:1", imagePullPolicy: Always, resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 16Mi}}}
`

// workloadsKinds are objects that run such a Pod. The Deployment is paused, so that its controller makes no ReplicaSet.
var workloadsKinds = map[string]string{
	"pods":        "{apiVersion: v1, kind: Pod, metadata: {name: app, namespace: NAME}}",
	"deployments": "{apiVersion: apps/v1, kind: Deployment, metadata: {name: app, namespace: NAME}, spec: {paused: true, selector: {matchLabels: {app: app}}, template: {metadata: {labels: {app: app}}}}}",
}

// workload returns an object of a kind in a namespace.
func workload(b *testing.B, kind, namespace string) *unstructured.Unstructured {
	b.Helper()
	u := readOne(b, strings.ReplaceAll(workloadsKinds[kind], "NAME", namespace))
	podSpec := "apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec:" + strings.ReplaceAll(strings.ReplaceAll(workloadsPod, "NAME", namespace), "\n", "\n  ")
	spec, _, _ := unstructured.NestedMap(readOne(b, podSpec).Object, "spec")
	path := []string{"spec"}
	if kind == "deployments" {
		path = []string{"spec", "template", "spec"}
	}
	if err := unstructured.SetNestedMap(u.Object, spec, path...); err != nil {
		b.Fatal(err)
	}
	return u
}

func readOne(b *testing.B, manifest string) *unstructured.Unstructured {
	b.Helper()
	objects, err := flux.ReadObjects([]byte(manifest))
	if err != nil {
		b.Fatal(err)
	}
	return objects[0]
}

// BenchmarkWorkloadCreate compares the creation of Pods and Deployments on two API servers
// with the same program, flags and namespaces. On the first, Tenure's rules and limits of images, pull
// policies, priority and runtime classes, nodes and tolerations hold in every namespace. On the second
// there is nothing of Tenure. It measures one creation, in pairs in random order and in random namespaces, and the
// creations a second of eight clients, with 10 and with 5,000 namespaces. The figures without "real" are of dry runs,
// which leave out the storage. The figures flat compare the ratios of both sizes.
func BenchmarkWorkloadCreate(b *testing.B) {
	configs := [2]*rest.Config{unbounded(startBare(b).REST), unbounded(startBare(b).REST)}
	var admins, users [2]client.Client
	for side, config := range configs {
		config.WarningHandlerWithContext = rest.NoWarnings{}
		users[side] = impersonating(b, config, "user")
		var err error
		if admins[side], err = client.New(config, client.Options{}); err != nil {
			b.Fatal(err)
		}
		if err := createAll(b.Context(), admins[side], workloadsRights); err != nil {
			b.Fatal(err)
		}
	}
	prepareRules(b, admins[1], configs[1])
	ratios, made := map[string]float64{}, 0
	for _, namespaces := range []int{10, 5000} {
		makeLimited(b, admins, made, namespaces)
		made = namespaces
		for kind := range workloadsKinds {
			awaitLimits(b, users[1], kind, namespaces-1)
		}
		settle(b, admins[0])
		settle(b, admins[1])
		for kind := range workloadsKinds {
			objects := make([]*unstructured.Unstructured, namespaces)
			for i := range objects {
				objects[i] = workload(b, kind, tenantName(i))
			}
			dry := func(ctx context.Context, side, namespace int) error {
				return users[side].Create(ctx, objects[namespace].DeepCopy(), client.DryRunAll)
			}
			var made atomic.Int64
			stored := func(ctx context.Context, side, namespace int) error {
				o := objects[namespace].DeepCopy()
				o.SetName(fmt.Sprintf("app-%d", made.Add(1)))
				return users[side].Create(ctx, o)
			}
			name := fmt.Sprintf("%s-%d", kind, namespaces)
			ratio := compareWorkloads(b, name, namespaces, dry)
			compareWorkloads(b, name+"-real", namespaces, stored)
			settle(b, admins[0])
			settle(b, admins[1])
			if before, ok := ratios[kind]; ok {
				b.ReportMetric(ratio/before, kind+"-flat(max=1.1)")
			}
			ratios[kind] = ratio
		}
	}
	b.ReportMetric(0, "ns/op")
}

// compareWorkloads reports the times and rates of creations on side 0, which has no rules, and on side 1, which has
// rules. It returns the ratio of the times.
func compareWorkloads(b *testing.B, name string, namespaces int, create creation) float64 {
	b.Helper()
	without, with := creationTimes(b, namespaces, create)
	bareRate, rate := creationRates(b, namespaces, create)
	b.ReportMetric(without, name+"-ms-bare")
	b.ReportMetric(with, name+"-ms-tenure")
	b.ReportMetric(with/without, name+"-ratio(max=1.25)")
	b.ReportMetric(rate/bareRate, name+"-rate-ratio(min=0.85)")
	return with / without
}

// makeLimited creates namespaces on both API servers, with limits on the second one.
func makeLimited(b *testing.B, admins [2]client.Client, from, to int) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(8)
	for i := from; i < to; i++ {
		for side, manifests := range []string{workloadsNamespace, workloadsNamespace + workloadsLimits} {
			group.Go(func() error {
				return createAll(ctx, admins[side], strings.ReplaceAll(manifests, "NAME", tenantName(i)))
			})
		}
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// createAll creates the objects of manifests.
func createAll(ctx context.Context, admin client.Client, manifests string) error {
	objects, err := flux.ReadObjects([]byte(manifests))
	for _, o := range objects {
		err = errors.Join(err, admin.Create(ctx, o))
	}
	return err
}

// awaitLimits waits until the limits hold in a namespace: what keeps them is accepted, and an image from elsewhere is refused.
func awaitLimits(b *testing.B, user client.Client, kind string, namespace int) {
	b.Helper()
	good, bad := workload(b, kind, tenantName(namespace)), workload(b, kind, tenantName(namespace))
	path := []string{"spec", "containers"}
	if kind == "deployments" {
		path = []string{"spec", "template", "spec", "containers"}
	}
	containers, _, _ := unstructured.NestedSlice(bad.Object, path...)
	containers[0].(map[string]any)["image"] = "elsewhere.example.com/app:1"
	if err := unstructured.SetNestedSlice(bad.Object, containers, path...); err != nil {
		b.Fatal(err)
	}
	testwait.For(b, "the limits of "+kind+" to be in force", time.Minute, func() (bool, string) {
		refused := user.Create(b.Context(), bad.DeepCopy(), client.DryRunAll)
		err := user.Create(b.Context(), good.DeepCopy(), client.DryRunAll)
		return err == nil && refused != nil && strings.Contains(refused.Error(), "elsewhere.example.com"), fmt.Sprintf("%v; for a bad one: %v", err, refused)
	})
}

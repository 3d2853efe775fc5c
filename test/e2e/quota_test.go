package e2e

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

const (
	// dividedTenant has a quota over two namespaces, so each has two CPUs and 20Gi.
	dividedTenant = `apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: divided}
spec:
  owners: [{kind: User, name: dora}]
  namespaces: {create: [divided-from, divided-to]}
  quotas: [{name: compute, hard: {requests.cpu: "4", requests.storage: 40Gi}}]
`
	dividedSource = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: large, namespace: divided-to}
spec: {interval: 1h, url: "https://git.example.com/acme/large", ref: {branch: main}}
`
	// Flux would retry a failed first attempt only after an hour.
	dividedSync = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: large, namespace: divided-to}
spec: {interval: 1h, retryInterval: 1h, timeout: 1m, path: ./, prune: true, wait: true, targetNamespace: divided-to, serviceAccountName: divided, sourceRef: {kind: GitRepository, name: large}}
`
	largeClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: large}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 35Gi}}}
`
	largeDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: large}
spec:
  replicas: 4
  selector: {matchLabels: {app: large}}
  template:
    metadata: {labels: {app: large}}
    spec:
      containers: [{name: app, image: images.example.com/app:1, resources: {requests: {cpu: "1"}}}]
`
)

// testQuotaMoves lets a Kustomization of a tenant deliver a Deployment and a claim that use
// most of the tenant's quota, right after another namespace of the tenant stopped using it.
// kustomize-controller sends a dry run of each object first, and each attempt must be the
// only one.
func testQuotaMoves(r run) {
	const account = "--as=system:serviceaccount:divided-from:divided"
	r.kubectl(dividedTenant, "apply", "-f", "-")
	testwait.For(r.t, "both namespaces to have a part of the quota and the tenant's role", patience, func() (bool, string) {
		labelled := r.kubectl("", "get", "namespaces", "-l", "tenure.dev/tenant=divided,tenure.dev/parameters,divided-quota.tenure.dev/pods=true", "-o", "name")
		bound := r.kubectl("", "get", "rolebindings", "-A", "--field-selector", "metadata.name=tenure-reconciler", "-o", "jsonpath={.items[*].metadata.namespace}")
		return strings.Count(labelled, "\n") == 2 && strings.Contains(bound, "divided-from") && strings.Contains(bound, "divided-to"), labelled + bound
	})
	r.kubectl(dividedSource, "apply", "-f", "-")
	r.until("GitRepository/divided-to/large", "to be ready", func(row flux.Row) bool { return row.Ready == "True" })

	large := largeClaim + "---\n" + largeDeployment
	testwait.For(r.t, "the first namespace to use most of the quota", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, large, "apply", "-n", "divided-from", "-f", "-", account)
		return err == nil, out
	})
	r.kubectl("", "rollout", "status", "deployment/large", "-n", "divided-from", atMost)
	r.kubectl("", "delete", "deployment/large", "persistentvolumeclaim/large", "-n", "divided-from", "--cascade=foreground", account)
	for name, share := range map[string]string{"requests.cpu": "2", "requests.storage": "20Gi"} {
		part := r.kubectl("", "get", "resourcequotas", "-n", "divided-to", "-l", "tenure.dev/quota-scope=Tenant", "-o", `jsonpath={.items[*].spec.hard.`+strings.ReplaceAll(name, ".", `\.`)+`}`)
		if got, err := resource.ParseQuantity(part); err != nil || got.Cmp(resource.MustParse(share)) > 0 {
			r.t.Errorf("before the delivery, the namespace has the part %q of %s, and not at most its share of %s", part, name, share)
		}
	}

	began := time.Now()
	r.kubectl(dividedSync, "apply", "-f", "-")
	delivered := r.until("Kustomization/divided-to/large", "to be ready or to have failed", func(row flux.Row) bool {
		return row.State == flux.Ready || row.State == flux.Failed
	})
	r.t.Logf("delivered %.1fs after it was allowed to begin", time.Since(began).Seconds())
	if delivered.State != flux.Ready {
		r.t.Errorf("what the tenant has enough for was not delivered: %s", delivered.Message)
	}
	// Where the API server learns late of a larger part, it refuses a Pod, and the ReplicaSet tries again.
	// TestQuotaMoves of internal/manager counts how often that happens. What Flux applies is refused never.
	refused := r.kubectl("", "get", "events", "-n", "divided-to", "--field-selector", "type=Warning")
	for line := range strings.Lines(refused) {
		if strings.Contains(line, "exceeded quota") && !strings.Contains(line, "FailedCreate") {
			r.t.Errorf("a part of the tenant's quota refused what the tenant has enough for:\n%s", refused)
		}
	}
}

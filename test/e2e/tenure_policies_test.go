package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
)

// tenureProfile allows the sources and accounts that the tenants of the example use.
const tenureProfile = `apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  breakGlass: [firefighters]
  tenants:
    sources:
      git: ["https://git.example.com/acme/*"]
      helm: ["https://charts.example.com"]
      oci: ["oci://registry.example.com/acme/*"]
    flagger: {}
    signatures: {oci: {providers: [cosign]}, keys: {cosign: {release.pub: any}}}
`

// ownedTeam makes one of the example's tenants a Tenant, with an owner of each kind: owners of
// one kind have the same rights.
const ownedTeam = `apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: dev-team}
spec:
  owners: [{kind: User, name: alice}, {kind: Group, name: developers}, {kind: ServiceAccount, name: robot, namespace: apps}]
  namespaces: {quota: 5, podSecurity: restricted}
  quotas:
    - {name: compute, hard: {requests.cpu: "4"}}
    - {name: selected, hard: {count/jobs.batch: "200"}, namespaceSelector: {matchLabels: {stage: test}}}
`

// platformAgent are workloads of the platform in the tenant's namespace, a Pod and a claim without a workload.
const platformAgent = `apiVersion: apps/v1
kind: Deployment
metadata: {name: agent}
spec:
  replicas: 1
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: agent
          image: images.example.com/agent:1
          resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 16Mi}}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Pod
metadata: {name: probe, labels: {app: probe}}
spec:
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: probe
      image: images.example.com/probe:1
      resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 16Mi}}
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs}
spec:
  selector: {matchLabels: {app: logs}}
  template:
    metadata: {labels: {app: logs}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: logs
          image: images.example.com/logs:1
          resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 16Mi}}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: backup}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
          containers:
            - name: backup
              image: images.example.com/backup:1
              resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 16Mi}}
              securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec:
  template:
    spec:
      restartPolicy: Never
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: migrate
          image: images.example.com/migrate:1
          resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 16Mi}}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-store-0}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

// platformSet is a ResourceSet of the platform. A fleet with one runs flux-operator.
const platformSet = `apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: notes, namespace: flux-system}
spec: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: notes, namespace: flux-system}}]}
`

// newcomer is another Tenant, which has owners and no namespace yet, and its Kustomization.
const (
	newcomer = `apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: newcomer}
spec: {owners: [{kind: Group, name: newcomers}], namespaces: {quota: 2}}
`
	newcomerSync = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: tenant-newcomer, namespace: flux-system}
spec:
  dependsOn: [{name: policies}]
  interval: 5m
  retryInterval: 30s
  path: ./tenants/newcomer
  prune: true
  serviceAccountName: kustomize-controller
  sourceRef: {kind: GitRepository, name: flux-system}
`
)

// fewHosts is a patch that takes the way to other hosts from kustomize-controller, and adds the artifact proxy, as the
// lockdown does.
const fewHosts = `  - target: {kind: Deployment, name: kustomize-controller}
    patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: any}
      spec:
        template:
          spec:
            containers:
              - name: manager
                env:
                  - {name: HTTP_PROXY, value: "http://127.0.0.1:9080"}
                  - {name: HTTPS_PROXY, value: "http://127.0.0.1:9"}
                  - {name: NO_PROXY, value: "notification-controller.flux-system.svc.cluster.local."}
                  - {name: GIT_ALLOW_PROTOCOL, value: "http:https"}
  - target: {kind: Deployment, name: kustomize-controller}
    patch: |
      - op: add
        path: /spec/template/spec/containers/-
        value:
          name: artifact-proxy
          image: registry.example.com/tenure-server:v1
          args: [artifact-proxy, --server=source-controller.flux-system.svc.cluster.local, --server=source-watcher.flux-system.svc.cluster.local]
`

// tenureFleet returns a copy of the example with Tenure's policies and role in place of its
// own.
func tenureFleet(t *testing.T) example {
	t.Helper()
	e := copyExample(t)
	policies := filepath.Join(e.platform, "infrastructure", "policies")
	if err := os.RemoveAll(policies); err != nil {
		t.Fatal(err)
	}
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	roles, err := os.ReadFile(filepath.Join(root, "config", "rbac", "roles.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(t, policies, map[string]string{
		"kustomization.yaml": "resources: [crds.yaml, policies.yaml, roles.yaml, profile.yaml, manager.yaml, tenant.yaml]\n",
		"tenant.yaml":        ownedTeam,
		"manager.yaml":       string(config.Manager()),
		"crds.yaml":          string(config.CRDs()) + "\n---\n" + string(testcrds.Flagger()) + "\n---\n" + string(testcrds.NetworkPolicyAPI("v1beta1")) + "\n---\n" + string(testcrds.GatewayAPI()),
		"policies.yaml":      string(config.Policies()),
		"roles.yaml":         string(roles),
		"profile.yaml":       tenureProfile,
	})
	edit(t, "patches:\n", "patches:\n"+fewHosts, e.platform, "clusters", "staging", "flux-system", "kustomization.yaml")
	write(t, platformAgent, e.platform, "tenants", "base", "dev-team", "agent.yaml")
	edit(t, "resources:\n", "resources:\n  - agent.yaml\n", e.platform, "tenants", "base", "dev-team", "kustomization.yaml")
	write(t, platformSet, e.platform, "clusters", "staging", "resource-set.yaml")
	write(t, newcomer, e.platform, "tenants", "newcomer", "tenant.yaml")
	write(t, newcomerSync, e.platform, "clusters", "staging", "tenant-newcomer.yaml")
	for _, tenant := range []string{"dev-team", "dev-team-preview", "billing"} {
		edit(t, "name: acme-tenant", "name: tenure-tenant", e.platform, "tenants", "base", tenant, "rbac.yaml")
	}
	const label = "toolkit.fluxcd.io/tenant: dev-team\n"
	for _, tenant := range []string{"dev-team", "dev-team-preview"} {
		edit(t, label, label+"    tenure.dev/tenant: dev-team\n    stage: test\n", e.platform, "tenants", "base", tenant, "namespace.yaml")
	}
	return e
}

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/ablation"
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
  quotas: [{name: compute, hard: {requests.cpu: "4"}}]
`

// platformAgent is a workload of the platform in the tenant's namespace.
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
		"crds.yaml":          string(config.CRDs()) + "\n---\n" + string(testcrds.Flagger()),
		"policies.yaml":      string(config.Policies()),
		"roles.yaml":         string(roles),
		"profile.yaml":       tenureProfile,
	})
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
		edit(t, label, label+"    tenure.dev/tenant: dev-team\n", e.platform, "tenants", "base", tenant, "namespace.yaml")
	}
	return e
}

// TestVerifyTenurePolicies checks that Tenure's policies, role and manager stop every attack
// that Flux and Kubernetes do not stop.
func TestVerifyTenurePolicies(t *testing.T) {
	t.Parallel()
	e := tenureFleet(t)
	policies := filepath.Join(e.platform, "infrastructure", "policies")
	write(t, strings.Replace(string(config.Proxy()), "  replicas: 2\n", "  replicas: 1\n", 1), policies, "proxy.yaml")
	edit(t, "resources: [", "resources: [proxy.yaml, ", policies, "kustomization.yaml")
	r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing#main="+e.billing))
	expectNothing(t, "the example works under Tenure's rules as it is", failed)
	through, report := verify(r)
	if len(through) > 0 {
		t.Errorf("got through: %q", through)
	}
	// The attacks that concern Tenants were tried as one with namespaces; for a Tenant without a
	// namespace, the attacks that its owners can try.
	for tenant, rows := range map[string]string{
		"dev-team": "I6 I7 I8-proxy I12 I12-proxy I13-proxy I14 I15 I16 I17 I18 I24 I26 N6 S12 S14 A2 A4 A5 A5-api-workloads A7 A8-proxy A9-api A9-api-Tenant W1 W2-proxy",
		"newcomer": "I7 I12 I16 I17 A2",
	} {
		for _, id := range strings.Fields(rows) {
			i := slices.IndexFunc(report.Results, func(r catalog.Result) bool { return r.Tenant == tenant && (r.Attack.ID == id || r.Attack.Key() == id) })
			switch {
			case i < 0:
				t.Errorf("%s was not tried as %s", id, tenant)
			case report.Results[i].Finding.Outcome == catalog.NotInstalled:
				t.Errorf("%s was tried as %s where nothing is attacked: %s", id, tenant, report.Results[i].Finding.Message)
			}
		}
	}
	r.kubectl("", "wait", "--for=delete", "namespace/tenure-canary", "namespace/tenure-attack-i5", "namespace/tenure-attack-i5-release", atMost)
	t.Run("Ablation", func(t *testing.T) { ablateTenure(r.with(t)) })
}

// ablateTenure removes Tenure's rules, together with other controls that stop the same
// attacks.
func ablateTenure(r run) {
	r.t.Helper()
	opts := attackOptions(r)
	opts.Tenant = "dev-team"
	all, err := ablation.Run(r.t.Context(), ablation.Options{Attack: opts, Rows: ablation.TenureRows(), Excluded: ablation.TenureExcluded(), Progress: func(m ablation.Measured) {
		r.t.Logf("without %s: %v after %.1fs", m.Row.Name(), m.Through, m.Took.Seconds())
	}})
	if err != nil {
		r.t.Error(err)
	}
	if got, want := len(all), len(ablation.TenureRows())+1; got != want {
		r.t.Errorf("%d rows were tried, want %d", got, want)
	}
	for _, m := range all {
		for _, fault := range m.Faults {
			r.t.Errorf("without %s: %s", m.Row.Name(), fault)
		}
		want := slices.Sorted(slices.Values(append(slices.Clone(m.Row.Attacks), m.Row.Also...)))
		if diff := cmp.Diff(want, m.Through); diff != "" {
			r.t.Errorf("what gets through without %s (-want +got):\n%s", m.Row.Name(), diff)
		}
	}
}

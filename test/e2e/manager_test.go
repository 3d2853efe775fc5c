package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// The fleet of TestManager: Tenure comes first, then the tenants, each a labelled Namespace
// with its objects in the same commit.
const (
	tenureSync = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: tenure, namespace: flux-system}
spec: {interval: 1h, path: ./infrastructure/tenure, prune: true, wait: true, timeout: 2m, sourceRef: {kind: GitRepository, name: flux-system}}
`
	tenantsSync = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: tenants, namespace: flux-system}
spec:
  interval: 1h
  path: ./tenants
  prune: true
  dependsOn: [{name: tenure}]
  sourceRef: {kind: GitRepository, name: flux-system}
`
	// Flux would retry a failed first attempt only after an hour.
	tenantManifests = `apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {tenure.dev/tenant: %[1]s}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: app, namespace: %[1]s}
spec: {interval: 1h, url: "https://git.example.com/acme/app", ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: %[1]s}
spec: {interval: 1h, path: ./, prune: true, targetNamespace: %[1]s, serviceAccountName: %[1]s, sourceRef: {kind: GitRepository, name: app}}
`
	managedProfile = `apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  tenants:
    sources: {git: ["https://git.example.com/acme/**"]}
    notifications: {addresses: ["%s/**"]}
`
	// A sync in the platform's namespace with its own account, which has rights only in one
	// tenant's namespace (D2).
	delegatedSync = `apiVersion: v1
kind: ServiceAccount
metadata: {name: delegate, namespace: flux-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: delegate, namespace: team-0, labels: {kustomize.toolkit.fluxcd.io/name: flux-system, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-tenant}
subjects: [{kind: ServiceAccount, name: delegate, namespace: flux-system}]
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: greedy, namespace: flux-system}
spec: {interval: 1h, url: "https://git.example.com/acme/greedy", ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: greedy, namespace: flux-system}
spec: {interval: 1h, retryInterval: 2s, path: ./, prune: true, serviceAccountName: delegate, sourceRef: {kind: GitRepository, name: greedy}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: chartless, namespace: flux-system}
spec: {interval: 1h, targetNamespace: team-0, serviceAccountName: delegate, chartRef: {kind: OCIRepository, name: missing}}
`
	greedyManifest = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: greedy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: delegate, namespace: flux-system}]
`
	tenantAlert = `apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: hook, namespace: team-0}
spec: {type: generic, address: "%s/hook"}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata: {name: failures, namespace: team-0}
spec: {eventSeverity: error, providerRef: {name: hook}, eventSources: [{kind: Kustomization, name: "*"}]}
`
)

// A repository of the platform with manifests and a chart that a tenant may use, and the
// tenant's objects that use it. No reference crosses a namespace.
const (
	gatesPatch = `resources: [gotk-components.yaml, gotk-sync.yaml]
patches:
  - target: {kind: Deployment, name: (kustomize-controller|helm-controller)}
    patch: |
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --feature-gates=ExternalArtifact=true}
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --no-cross-namespace-refs=true}
`
	sharedSource = `apiVersion: v1
kind: Namespace
metadata: {name: shared}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: common, namespace: shared}
spec: {interval: 1s, url: "https://git.example.com/acme/common", ref: {branch: main}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: chart, namespace: shared}
spec: {interval: 1m, chart: ./chart, reconcileStrategy: Revision, sourceRef: {kind: GitRepository, name: common}}
---
apiVersion: tenure.dev/v1alpha1
kind: SourceGrant
metadata: {name: common, namespace: shared}
spec:
  to: [{kind: GitRepository, name: common}, {kind: HelmChart, name: chart}]
  from: [{tenant: team-4}]
`
	sharedUse = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: common, namespace: %[1]s}
spec: {interval: 1h, path: ./manifests, prune: true, targetNamespace: %[1]s, serviceAccountName: %[1]s, sourceRef: {kind: ExternalArtifact, name: shared.common}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: chart, namespace: %[1]s}
spec: {interval: 1h, serviceAccountName: %[1]s, chartRef: {kind: ExternalArtifact, name: shared.chart}}
`
)

// managedTeams is the number of tenants that one commit onboards.
const managedTeams = 10

// TestManager runs a fleet with the manager in it.
func TestManager(t *testing.T) {
	t.Parallel()
	hooks := &hooks{}
	server := httptest.NewServer(hooks)
	t.Cleanup(server.Close)
	files := map[string]string{
		system + "kustomization.yaml":         gatesPatch,
		"clusters/test/tenure.yaml":           tenureSync,
		"clusters/test/apps.yaml":             tenantsSync,
		"infrastructure/tenure/crds.yaml":     string(config.CRDs()),
		"infrastructure/tenure/roles.yaml":    string(config.Roles()),
		"infrastructure/tenure/policies.yaml": string(config.Policies()),
		"infrastructure/tenure/manager.yaml":  string(config.Manager()),
		"infrastructure/tenure/profile.yaml":  fmt.Sprintf(managedProfile, server.URL),
	}
	withCapsule(t, files)
	for i := range managedTeams {
		files[fmt.Sprintf("tenants/team-%d.yaml", i)] = fmt.Sprintf(tenantManifests, fmt.Sprintf("team-%d", i))
	}
	dir, _ := newFleet(t, files)
	app := newFolder(t, map[string]string{"app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {value: first}\n"})
	common := newFolder(t, map[string]string{
		"manifests/common.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: common}\ndata: {value: first}\n",
		"chart/Chart.yaml":       "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"chart/templates/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: released}\ndata: {value: chart}\n",
	})
	large := newFolder(t, map[string]string{"claim.yaml": largeClaim, "deployment.yaml": largeDeployment})
	greedy := newFolder(t, map[string]string{"greedy.yaml": greedyManifest})
	r, failed := start(t, localcluster.Options{Fleet: dir, Path: "clusters/test", Maps: parseMaps(t,
		"https://git.example.com/acme/app#main="+app, "https://git.example.com/acme/common#main="+common, "https://git.example.com/acme/greedy#main="+greedy, "https://git.example.com/acme/large#main="+large)})
	expectNothing(t, "everything is ready", failed)

	t.Run("onboarding", func(t *testing.T) { testOnboarding(r.with(t)) })
	t.Run("refusal", func(t *testing.T) { testRefusal(r.with(t), hooks, server.URL) })
	t.Run("shared source", func(t *testing.T) { testSharedSource(r.with(t), common) })
	t.Run("quota moves", func(t *testing.T) { testQuotaMoves(r.with(t)) })
	t.Run("cluster-scoped kinds", func(t *testing.T) { testClusterScoped(r.with(t)) })
	t.Run("killed", func(t *testing.T) { testKilledManager(r.with(t)) })
	t.Run("leader killed", func(t *testing.T) { testKilledLeader(r.with(t)) })
	t.Run("owners' namespaces", func(t *testing.T) { testOwnersNamespaces(r.with(t)) })
	t.Run("policies restarted", func(t *testing.T) { testPoliciesRestarted(r.with(t)) })
	t.Run("Capsule's manifests", func(t *testing.T) { testCapsuleUnchanged(r.with(t)) })
	t.Run("Capsule's document", func(t *testing.T) { testCapsuleDocument(r.with(t)) })
	t.Run("move from Capsule", func(t *testing.T) { testCapsuleMove(r.with(t)) })
	t.Run("documented commands", func(t *testing.T) {
		dir := t.TempDir()
		pasteCommands(t, withLayer, "export HOME='"+dir+"' KUBECONFIG='"+r.Kubeconfig+"'", func() string { return dir })
	})
	t.Run("stopped", func(t *testing.T) { testStoppedManager(r.with(t), common) })
}

// hooks receives the notifications of the tenant's Alert.
type hooks struct {
	mu   sync.Mutex
	said []string
}

func (h *hooks) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	var event struct{ Message string }
	if json.NewDecoder(request.Body).Decode(&event) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, event.Message)
}

func (h *hooks) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.said, "\n")
}

// testOnboarding checks that one commit has onboarded all tenants, without a refusal.
func testOnboarding(r run) {
	for i := range managedTeams {
		team := fmt.Sprintf("team-%d", i)
		r.until("Kustomization/"+team+"/app", "to be ready", func(row flux.Row) bool { return row.Ready == "True" })
		if got := r.field(team, "configmap/app", ".data.value"); got != "first" {
			r.t.Errorf("%s has not delivered: %q", team, got)
		}
		if warnings := r.kubectl("", "get", "events", "-n", team, "--field-selector", "type=Warning"); strings.Contains(warnings, "forbidden") || strings.Contains(warnings, "denied") {
			r.t.Errorf("%s was refused something:\n%s", team, warnings)
		}
	}
	if refused := r.kubectl("", "get", "events", "-n", "flux-system"); strings.Contains(refused, "orbidden") || strings.Contains(refused, "denied") {
		r.t.Errorf("the platform was refused something:\n%s", refused)
	}
	testwait.For(r.t, "the profile to be in force", patience, func() (bool, string) {
		said := r.field("", "tenancyprofile/default", ".status.conditions[0].message")
		return said == fmt.Sprintf("in force in %[1]d namespaces of %[1]d tenants", managedTeams), said
	})
}

// testRefusal lets a tenant deliver forbidden objects through a sync in the platform's
// namespace, and checks that the tenant sees the refusal (R4).
func testRefusal(r run, hooks *hooks, address string) {
	r.kubectl(fmt.Sprintf(tenantAlert, address), "apply", "-f", "-")
	r.kubectl(delegatedSync, "apply", "-f", "-")
	const tenant = "system:serviceaccount:team-0:team-0"
	wants := func(said string) bool {
		return strings.Contains(said, "Kustomization flux-system/greedy at main@sha1:") &&
			strings.Contains(said, `cannot patch resource "clusterrolebindings"`)
	}
	testwait.For(r.t, "the tenant to read why in its namespace", patience, func() (bool, string) {
		said := r.kubectl("", "get", "events", "-n", "team-0", "--as", tenant, "-o", "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}")
		return wants(said) && strings.Contains(said, "ReconciliationFailed") && strings.Contains(said, "HelmRelease flux-system/chartless: "), said
	})
	testwait.For(r.t, "the tenant's Alert to say why", patience, func() (bool, string) {
		return wants(hooks.all()), hooks.all()
	})
	if others := r.kubectl("", "get", "events", "-n", "team-1"); strings.Contains(others, "greedy") {
		r.t.Errorf("another tenant reads about it:\n%s", others)
	}
	// It fails every two seconds, which is no news.
	before := r.kubectl("", "get", "events", "-n", "team-0", "--field-selector", "involvedObject.kind=TenantParameters", "-o", "name")
	transitions := func() string {
		return r.field("flux-system", "kustomization/greedy", ".status.history[0].totalReconciliations")
	}
	first := transitions()
	testwait.For(r.t, "Flux to try again", patience, func() (bool, string) { now := transitions(); return now != first, now })
	if after := r.kubectl("", "get", "events", "-n", "team-0", "--field-selector", "involvedObject.kind=TenantParameters", "-o", "name"); after != before || strings.Count(after, "\n") > 3 {
		r.t.Errorf("the same failure made more than one event:\n%s", after)
	}
	r.kubectl("", "delete", "kustomization/greedy", "helmrelease/chartless", "-n", "flux-system")
}

// testSharedSource grants one tenant the use of a source of the platform, and then revokes the
// grant (R2, S11); another tenant never gets access.
func testSharedSource(r run, common string) {
	const tenant, other = "team-4", "team-5"
	r.kubectl(sharedSource, "apply", "-f", "-")
	r.kubectl(fmt.Sprintf(sharedUse, other), "apply", "-f", "-")
	// Flux retries a missing source after half a minute; the copies exist before that.
	for _, name := range []string{"shared.common", "shared.chart"} {
		r.until("ExternalArtifact/"+tenant+"/"+name, "to be ready", func(row flux.Row) bool { return row.Ready == "True" })
	}
	r.kubectl(fmt.Sprintf(sharedUse, tenant), "apply", "-f", "-")
	r.until("Kustomization/"+tenant+"/common", "to be ready", func(row flux.Row) bool { return row.Ready == "True" })
	r.until("HelmRelease/"+tenant+"/chart", "to be ready", func(row flux.Row) bool { return row.Ready == "True" })
	if got := r.field(tenant, "configmap/released", ".data.value"); got != "chart" {
		r.t.Errorf("the shared chart has not been released: %q", got)
	}
	moved := func(value string) {
		write(r.t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: common}\ndata: {value: "+value+"}\n", common, "manifests", "common.yaml")
	}
	moved("second")
	testwait.For(r.t, "the consumer to follow the source", patience, func() (bool, string) {
		got := r.field(tenant, "configmap/common", ".data.value")
		return got == "second", got
	})
	r.kubectl("", "delete", "sourcegrant/common", "-n", "shared")
	r.until("Kustomization/"+tenant+"/common", "to say why nothing comes any more", func(row flux.Row) bool {
		return row.Ready == "False" && strings.Contains(row.Message, "shared.common") || strings.Contains(row.Message, "artifact not found")
	})
	had := r.field("shared", "gitrepository/common", ".status.artifact.revision")
	moved("third")
	testwait.For(r.t, "the owner's source to move on", patience, func() (bool, string) {
		got := r.field("shared", "gitrepository/common", ".status.artifact.revision")
		return got != had, got
	})
	testwait.For(r.t, "the consumer to be told", patience, func() (bool, string) {
		events := r.kubectl("", "get", "events", "-n", tenant, "--field-selector", "reason=GrantEnded")
		return strings.Contains(events, "the grant of shared.common has ended"), events
	})
	// The manager reports the end of the grant before it deletes the copies.
	testwait.For(r.t, "the copies to be gone", patience, func() (bool, string) {
		left := r.kubectl("", "get", "externalartifacts", "-A", "-o", "name")
		return left == "", left
	})
	if got := r.field(tenant, "configmap/common", ".data.value"); got != "second" {
		r.t.Errorf("what was applied has not stayed as it was: %q", got)
	}
	if row, ok := r.row("Kustomization/" + other + "/common"); !ok || row.Ready != "False" {
		r.t.Errorf("a tenant without a grant has used the source: %+v", row)
	}
}

// testClusterScoped grants a tenant's account a cluster-scoped kind (D4), and checks that it
// got no other rights.
func testClusterScoped(r run) {
	const tenant = "system:serviceaccount:team-1:team-1"
	// The answer is the last line; kubectl exits with an error for no.
	can := func(as, verb, resource string) string {
		out, _ := kubectl(r.t, r.Cluster, "", "auth", "can-i", verb, resource, "--as="+as)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return lines[len(lines)-1]
	}
	for _, resource := range []string{"priorityclasses", "clusterroles", "namespaces", "persistentvolumes"} {
		if got := can(tenant, "create", resource); got != "no" {
			r.t.Errorf("before: the tenant may create %s: %s", resource, got)
		}
	}
	r.kubectl(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: team-1-cluster}
rules: [{apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [get, list, watch, create, update, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: team-1-cluster}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: team-1-cluster}
subjects: [{kind: ServiceAccount, name: team-1, namespace: team-1}]
`, "apply", "-f", "-")
	testwait.For(r.t, "the right to be there", patience, func() (bool, string) {
		got := can(tenant, "create", "priorityclasses")
		return got == "yes", got
	})
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "namespaces", "persistentvolumes", "customresourcedefinitions", "tenancyprofiles"} {
		if got := can(tenant, "create", resource); got != "no" {
			r.t.Errorf("the tenant may create %s as well: %s", resource, got)
		}
	}
	if got := can("system:serviceaccount:team-2:team-2", "create", "priorityclasses"); got != "no" {
		r.t.Errorf("another tenant has the right too: %s", got)
	}
}

// governedTeams returns the number of namespaces with a prefix whose parameters are in force.
func (r run) governedTeams(prefix string) int {
	r.t.Helper()
	return strings.Count(r.kubectl("", "get", "namespaces", "-l", "tenure.dev/parameters", "-o", "name"), "namespace/"+prefix)
}

// testKilledManager kills all replicas of the manager while it has to handle 20 namespaces, half of which it
// has to create for Tenants. This half is applied after they have stopped, so that the
// manager cannot have finished, and may have handled any part of the first half.
func testKilledManager(r run) {
	const count = 20
	var first, second strings.Builder
	for i := range count / 2 {
		fmt.Fprintf(&first, "---\n{apiVersion: v1, kind: Namespace, metadata: {name: late-%d, labels: {tenure.dev/tenant: late}}}\n", i)
	}
	for i := count / 2; i < count; i++ {
		fmt.Fprintf(&second, "---\n{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: late-%[1]d}, spec: {owners: [{kind: User, name: ann}], namespaces: {create: [late-%[1]d]}}}\n", i)
	}
	pids := r.managerProcesses(managerReplicas)
	signal := func(s syscall.Signal) {
		for _, pid := range pids {
			if err := syscall.Kill(pid, s); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.kubectl(first.String(), "apply", "-f", "-")
	signal(syscall.SIGSTOP)
	r.kubectl(second.String(), "apply", "-f", "-")
	signal(syscall.SIGKILL)
	left := count - r.governedTeams("late-")
	began := time.Now()
	testwait.For(r.t, "the manager to finish after its restart", patience, func() (bool, string) {
		now := r.governedTeams("late-")
		return now == count, fmt.Sprintf("%d of %d", now, count)
	})
	r.t.Logf("%d of %d namespaces were left, and done %.1fs after the kill", left, count, time.Since(began).Seconds())
	for i := range count {
		ns := fmt.Sprintf("late-%d", i)
		if got := r.field(ns, "rolebinding/tenure-reconciler", ".roleRef.name"); got != "tenure-tenant" {
			r.t.Errorf("%s has no binding: %q", ns, got)
		}
		if i == count-1 {
			if got := r.field(ns, "rolebinding/tenure:owners:tenure-tenant", ".subjects[0].name"); got != "ann" {
				r.t.Errorf("%s gives its owner nothing: %q", ns, got)
			}
		}
	}
}

// testStoppedManager stops the manager, and checks that the rules stay in force and that
// nothing else is refused. Consumers of a shared source keep their copy, and get the newest
// one after the restart.
func testStoppedManager(r run, common string) {
	const tenant = "team-4"
	r.kubectl(sharedSource, "apply", "-f", "-")
	follows := func(value string) {
		r.t.Helper()
		testwait.For(r.t, "the consumer to have what the source had "+value, patience, func() (bool, string) {
			got := r.field(tenant, "configmap/common", ".data.value")
			return got == value, got
		})
	}
	follows("third")
	r.kubectl("", "scale", "deployment/tenure-manager", "-n", "flux-system", "--replicas=0")
	testwait.For(r.t, "the manager to be gone", patience, func() (bool, string) {
		pods := r.kubectl("", "get", "pods", "-n", "flux-system", "-l", "app=tenure-manager", "-o", "name")
		return pods == "", pods
	})
	had := r.field("shared", "gitrepository/common", ".status.artifact.revision")
	write(r.t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: common}\ndata: {value: fourth}\n", common, "manifests", "common.yaml")
	testwait.For(r.t, "the source to move on without the manager", patience, func() (bool, string) {
		got := r.field("shared", "gitrepository/common", ".status.artifact.revision")
		return got != had, got
	})
	follows("third")
	kustomization := func(namespace, account string) string {
		return fmt.Sprintf("{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: more, namespace: %s}, spec: {interval: 1h, prune: true, serviceAccountName: %s, sourceRef: {kind: GitRepository, name: app}}}", namespace, account)
	}
	const dryRun = "--dry-run=server"
	as := "--as=system:serviceaccount:team-2:team-2"
	r.kubectl(kustomization("team-2", "team-2"), "apply", "-f", "-", dryRun, as)
	out, err := kubectl(r.t, r.Cluster, kustomization("team-2", "admin"), "apply", "-f", "-", dryRun, as)
	if err == nil || !strings.Contains(out, "tenant team-2: Kustomization more needs spec.serviceAccountName, one of: team-2") {
		r.t.Errorf("without the manager the rules do not hold: %v\n%s", err, out)
	}
	// New tenants' namespaces are governed by the profile itself.
	r.kubectl("{apiVersion: v1, kind: Namespace, metadata: {name: new, labels: {tenure.dev/tenant: new}}}", "apply", "-f", "-")
	r.kubectl(kustomization("new", "new"), "apply", "-f", "-", dryRun)
	testwait.For(r.t, "the rules to hold in a new namespace", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, kustomization("new", "admin"), "apply", "-f", "-", dryRun)
		return err != nil && strings.Contains(out, "tenant new: Kustomization more needs"), out
	})
	// Flux retries an object without rights after an hour, or when the manager runs again.
	r.kubectl(fmt.Sprintf(tenantManifests, "unbound"), "apply", "-f", "-")
	r.until("Kustomization/unbound/app", "to have no rights", func(row flux.Row) bool {
		return row.Ready == "False" && strings.Contains(row.Message, "is forbidden")
	})
	// A tenant's namespace is emptied; its end waits for the manager.
	r.kubectl("", "delete", "namespace/team-3", "--wait=false")
	testwait.For(r.t, "all but the parameters to be gone", patience, func() (bool, string) {
		left := r.kubectl("", "get", "kustomizations,gitrepositories,configmaps,serviceaccounts,rolebindings,resourcequotas,secrets", "-n", "team-3", "-o", "name")
		return left == "", left
	})
	r.kubectl("", "scale", "deployment/tenure-manager", "-n", "flux-system", "--replicas=2")
	testwait.For(r.t, "the namespace to be gone", patience, func() (bool, string) {
		left := r.kubectl("", "get", "namespace/team-3", "--ignore-not-found", "-o", "jsonpath={.status.conditions}")
		return left == "", left
	})
	follows("fourth")
	r.until("Kustomization/unbound/app", "to be ready", func(row flux.Row) bool { return row.Ready == "True" })
}

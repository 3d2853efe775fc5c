package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// capsuleOwner is the account that the fleet's tenant is applied as.
	capsuleOwner = "system:serviceaccount:dev-team:gitops-reconciler"
	// capsuleProfile allows the names that the fleet uses: see docs/how-to/move-from-capsule.md.
	// It is formatted with the repository's address and the pattern of the host of podinfo's
	// charts.
	capsuleProfile = `apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  tenants:
    accounts: {reconcilers: [gitops-reconciler]}
    kubeConfigs: [gitops-reconciler-kubeconfig]
    sources:
      git: ["%s"]
      helm: ["%s"]
`
	// capsuleOwnSync are objects that an owner applies by hand in its own namespace, which has the
	// Secret. It is formatted with the repository and the target namespace.
	capsuleOwnSync = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: own, namespace: dev-apps}
spec: {interval: 1h, url: "%s", ref: {branch: dev-team}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: own, namespace: dev-apps}
spec:
  interval: 1h
  path: ./own
  prune: true
  targetNamespace: %s
  serviceAccountName: gitops-reconciler
  kubeConfig: {secretRef: {name: gitops-reconciler-kubeconfig, key: kubeconfig}}
  sourceRef: {kind: GitRepository, name: own}
`
)

// moved returns a copy of a Capsule fleet with the changes of
// docs/how-to/move-from-capsule.md.
func (f foreign) moved(t *testing.T) foreign {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(f.dir)); err != nil {
		t.Fatal(err)
	}
	f.dir = dir
	write(t, configMap("own", "first"), dir, "dev-team", "own", "own.yaml")
	const asOwner = "spec:\n  serviceAccountName: gitops-reconciler\n  kubeConfig:"
	base := filepath.Join(dir, "main", "tenants", "base", "dev-team")
	edit(t, "kind: ServiceAccount\nmetadata:\n  name: gitops-reconciler\n", "kind: ServiceAccount\nmetadata:\n"+
		"  annotations: {capsule.addon.fluxcd/enabled: \"true\", capsule.addon.fluxcd/kubeconfig-global: \"true\"}\n  name: gitops-reconciler\n", base, "rbac.yaml")
	if f.own {
		// In fleets with the addon, the addon grants the account its role in the home namespace.
		edit(t, "home.yaml, ", "", base, "kustomization.yaml")
	}
	edit(t, "spec:\n  kubeConfig:", asOwner, base, "sync.yaml")
	edit(t, "spec:\n  kubeConfig:", asOwner, dir, "dev-team", "staging", "namespaces-kustomization.yaml")
	edit(t, "spec:\n  kubeConfig:", asOwner, dir, "dev-team", "staging", "podinfo-kustomization.yaml")
	// The HelmRelease is in another namespace than its target namespace.
	edit(t, "    name: podinfo\n    namespace: apps", "    name: podinfo\n    namespace: dev-team", dir, "dev-team", "staging", "podinfo-kustomization.yaml")
	// Owners cannot create namespaces whose names have no hyphen.
	for _, file := range [][]string{{"staging", "namespaces", "namespaces.yaml"}, {"staging", "namespaces-kustomization.yaml"}} {
		for _, name := range []string{"apps", "tools"} {
			edit(t, name, "dev-"+name, append([]string{dir, "dev-team"}, file...)...)
		}
	}
	edit(t, "targetNamespace: apps", "targetNamespace: dev-apps", dir, "dev-team", "base", "podinfo", "podinfo-release.yaml")
	edit(t, "spec:\n  targetNamespace:", "spec:\n  serviceAccountName: gitops-reconciler\n  targetNamespace:", dir, "dev-team", "base", "podinfo", "podinfo-release.yaml")
	return f
}

// capsuleTenure returns a folder with the objects that the platform team applies beside the
// fleet: Tenure, the support for Capsule's kinds, and the proxy, with one replica.
func capsuleTenure(t *testing.T, f foreign) string {
	t.Helper()
	files := map[string]string{"profile.yaml": fmt.Sprintf(capsuleProfile, f.url, wholeHost(t, f.podinfo))}
	for name, content := range map[string][]byte{
		"crds.yaml": config.CRDs(), "roles.yaml": config.Roles(), "policies.yaml": config.Policies(), "manager.yaml": config.Manager(),
		"capsule-crds.yaml": config.CapsuleCRDs(), "capsule-roles.yaml": config.CapsuleRoles(), "capsule-policies.yaml": config.CapsulePolicies(),
		"proxy.yaml": config.Proxy(),
	} {
		files[name] = string(content)
	}
	dir := newFolder(t, files)
	edit(t, "            - manager\n", "            - manager\n            - --capsule\n", dir, "manager.yaml")
	edit(t, "  replicas: 2\n", "  replicas: 1\n", dir, "proxy.yaml")
	return dir
}

// wholeHost returns the pattern that allows the whole host of an address.
func wholeHost(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + u.Host + "/**"
}

// proxied is a fleet with the kubeconfig of a tenant's owner.
type proxied struct {
	run
	// kubeconfig is a file that leads the owner to the proxy.
	kubeconfig string
	// env are further variables of the owner's programs.
	env   []string
	fleet foreign
}

// TestCapsuleFleetThroughProxy runs a fleet that was written for Capsule and its
// proxy with Tenure in their place.
func TestCapsuleFleetThroughProxy(t *testing.T) {
	t.Parallel()
	capsuleShape.each(t, testCapsuleFleetThroughProxy)
}

func testCapsuleFleetThroughProxy(t *testing.T, f foreign) {
	f = f.moved(t)
	began := time.Now()
	opts := f.options(t, f.podinfo+"="+podinfoCharts(t))
	opts.Apply = []string{capsuleTenure(t, f)}
	opts.Assume = []string{"flux-system/capsule", "flux-system/capsule-proxy"}
	r := run{testcluster.Start(t, opts), t}
	// Each of these fails until the previous one is ready or the manager has done its part.
	for _, ref := range []string{"Kustomization/dev-team/dev-team", "Kustomization/dev-team/namespaces", "HelmRelease/dev-team/podinfo", "Kustomization/dev-team/podinfo"} {
		r.hurry(ref)
	}
	expectNothing(t, "everything becomes ready", r.settle())
	t.Logf("ready %.1fs after the start", time.Since(began).Seconds())
	if ready := r.field("dev-apps", "deployment/podinfo", ".status.readyReplicas"); ready != "1" {
		t.Errorf("podinfo has %q ready Pods, want one", ready)
	}
	r.saysOf("dev-team", "Ready", "True")

	for _, namespace := range []string{"dev-apps", "dev-tools"} {
		r.untilMay(capsuleOwner, "create", "configmaps", "-n", namespace)
	}

	p := proxied{run: r, kubeconfig: r.ownersKubeconfig("dev-team"), fleet: f}
	t.Run("Sees", func(t *testing.T) { p.in(t).testSees() })
	t.Run("Watches", func(t *testing.T) { p.in(t).testWatches("dev-apps", "dev-team-more") })
	t.Run("Rights", func(t *testing.T) { p.in(t).testRights() })
	t.Run("OtherNamespaces", func(t *testing.T) { p.in(t).testOtherNamespaces() })
	t.Run("Rotation", func(t *testing.T) { p.in(t).testRotation() })
	t.Run("NoOtherWay", func(t *testing.T) { p.in(t).testNoOtherWay() })
}

func (p proxied) in(t *testing.T) proxied {
	return proxied{run: p.with(t), kubeconfig: p.kubeconfig, env: p.env, fleet: p.fleet}
}

// ask requests a reconcile of an object, and returns the value that Flux writes to the status
// afterwards. The annotation has a field manager other than kubectl's: Flux removes kubectl's
// annotations each time it applies an object, perhaps before it has reconciled it.
func (r run) ask(ref string) string {
	r.t.Helper()
	part, now := strings.Split(ref, "/"), time.Now().Format(time.RFC3339Nano)
	r.kubectl("", "annotate", "--overwrite", "--field-manager=flux", "-n", part[1], part[0]+"/"+part[2], "reconcile.fluxcd.io/requestedAt="+now)
	return now
}

// hurry waits until an object is ready. Flux is faster than the manager and retries a failure
// only after a minute, so hurry requests a reconcile after each failure.
func (r run) hurry(ref string) {
	r.t.Helper()
	told := ""
	testwait.For(r.t, ref+" to be ready", patience, func() (bool, string) {
		row, found := r.row(ref)
		if !found {
			return false, "there is none"
		}
		if row.State == flux.Failed && row.Message != told {
			told = row.Message
			r.t.Logf("%s says %q", ref, row.Message)
		}
		if row.State == flux.Failed {
			r.ask(ref)
		}
		return row.State == flux.Ready, fmt.Sprintf("it says %s %q", row.Ready, row.Message)
	})
}

// address returns the address of a port of the proxy on this machine.
func (r run) address(flag string) string {
	r.t.Helper()
	for _, word := range r.processOf("tenure-proxy").command {
		if value, ok := strings.CutPrefix(word, flag+"="); ok {
			return value
		}
	}
	r.t.Fatalf("the proxy has no %s", flag)
	return ""
}

// tenure runs our CLI with a kubeconfig.
func (r run) tenure(kubeconfig string, args ...string) string {
	r.t.Helper()
	cmd := command(r.t, r.t.TempDir(), args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("tenure %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// ownersKubeconfig returns a kubeconfig that an admin creates for a tenant's owner. Its
// address is the address of the process and not of the Service, so it needs the server name of
// the certificate.
func (r run) ownersKubeconfig(tenant string) string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "kubeconfig")
	r.tenure(r.Kubeconfig, "kubeconfig", tenant, "--server", "https://"+r.address("--listen"), "--server-name", "tenure-proxy.flux-system.svc", "-o", file)
	return file
}

// as runs kubectl as the owner, through the proxy.
func (p proxied) as(stdin string, args ...string) (string, error) {
	p.t.Helper()
	return kubectl(p.t, p.Cluster, stdin, append([]string{"--kubeconfig=" + p.kubeconfig}, args...)...)
}

// testSees checks that the usual commands show the tenant's part of the cluster and nothing
// else.
func (p proxied) testSees() {
	for _, tc := range []struct {
		reason string
		args   []string
		want   []string
	}{
		{"the namespaces of the tenant, and the owner's own", []string{"get", "namespaces", "-o", "name"}, []string{"namespace/dev-apps", "namespace/dev-team", "namespace/dev-tools"}},
		{"Pods of all namespaces", []string{"get", "pods", "-A", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.labels.app}{"\n"}{end}`}, []string{"dev-apps/podinfo"}},
		{"what helm list -A asks for", []string{"get", "secrets", "-A", "-l", "owner=helm,status=deployed", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.labels.name}{"\n"}{end}`}, []string{"dev-team/podinfo"}},
		{"what flux get all -A asks for", []string{"get", "kustomizations.kustomize.toolkit.fluxcd.io", "-A", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`}, []string{"dev-team/dev-team", "dev-team/namespaces", "dev-team/podinfo"}},
		{"what k9s asks first", []string{"auth", "can-i", "list", "pods", "-A"}, []string{"yes"}},
	} {
		out, err := p.as("", tc.args...)
		if err != nil {
			p.t.Errorf("%s: %v\n%s", tc.reason, err, out)
			continue
		}
		if diff := cmp.Diff(tc.want, strings.Fields(out)); diff != "" {
			p.t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
		}
	}
	out := p.tenure(p.kubeconfig, "get", "all", "-A")
	for _, want := range []string{"podinfo", "namespaces", "dev-team"} {
		if !strings.Contains(out, want) {
			p.t.Errorf("tenure get all -A lacks %s:\n%s", want, out)
		}
	}
	if strings.Contains(out, "flux-system") {
		p.t.Errorf("tenure get all -A shows the platform's:\n%s", out)
	}
}

// testWatches checks that kubectl -w shows new objects in a namespace that the owner creates,
// and none in other namespaces.
func (p proxied) testWatches(namespace, made string) {
	p.kubectl("", "create", "namespace", "nobodys")
	for _, namespace := range []string{namespace, "nobodys"} {
		p.kubectl(watched("of-"+namespace), "apply", "-n", namespace, "-f", "-")
	}
	seen := map[string]bool{}
	p.watching("kubectl", []string{"get", "configmaps", "-A", "-w", "-l", "watched", "-o", "name"}, func(line string) bool {
		seen[line] = true
		if line != "configmap/of-"+namespace {
			return line == "configmap/of-"+made
		}
		// kubectl has printed the list: later lines come from the watch.
		p.kubectl(watched("later"), "apply", "-n", "nobodys", "-f", "-")
		if out, err := p.as("", "create", "namespace", made); err != nil {
			p.t.Errorf("the owner cannot make a namespace: %v %s", err, out)
		}
		testwait.For(p.t, "the owner to have its rights there", patience, func() (bool, string) {
			out, err := p.as(watched("of-"+made), "apply", "-n", made, "-f", "-")
			return err == nil, out
		})
		return false
	})
	if diff := cmp.Diff(map[string]bool{"configmap/of-" + namespace: true, "configmap/of-" + made: true}, seen); diff != "" {
		p.t.Errorf("the watch: -want +got:\n%s", diff)
	}
}

// watched returns the manifest of a ConfigMap that testWatches watches.
func watched(name string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", labels: {watched: here}}}\n"
}

// testRights checks that the tenant's accounts have rights only in the tenant's namespaces.
func (p proxied) testRights() {
	for _, tc := range []struct {
		who       string
		namespace string
		want      bool
	}{
		{capsuleOwner, "dev-apps", true},
		{capsuleOwner, "dev-tools", true},
		{capsuleOwner, "flux-system", false},
		{capsuleOwner, "nobodys", false},
		{"system:serviceaccount:dev-apps:gitops-reconciler", "dev-apps", true},
		{"system:serviceaccount:dev-apps:gitops-reconciler", "dev-tools", false},
		{"system:serviceaccount:dev-apps:gitops-reconciler", "dev-team", false},
		{"system:serviceaccount:dev-apps:gitops-reconciler", "flux-system", false},
	} {
		for _, what := range [][]string{{"create", "configmaps"}, {"get", "secrets"}, {"create", "kustomizations.kustomize.toolkit.fluxcd.io"}} {
			if got := p.may(tc.who, append(what, "-n", tc.namespace)...); got != tc.want {
				p.t.Errorf("%s may %s in %s: %v, want %v", tc.who, strings.Join(what, " "), tc.namespace, got, tc.want)
			}
		}
		if p.may(tc.who, "list", "secrets", "-A") {
			p.t.Errorf("%s may list all Secrets", tc.who)
		}
	}
}

// testOtherNamespaces checks that the Secret in another namespace of the tenant works for
// Flux's Kustomizations there, as the account of that namespace and only for that namespace.
func (p proxied) testOtherNamespaces() {
	apply := func(target string) {
		if out, err := p.as(fmt.Sprintf(capsuleOwnSync, p.fleet.url, target), "apply", "-f", "-"); err != nil {
			p.t.Fatalf("the owner cannot apply in its namespace: %v\n%s", err, out)
		}
	}
	apply("dev-apps")
	p.until("Kustomization/dev-apps/own", "to be ready", func(row flux.Row) bool { return row.State == flux.Ready })
	if p.field("dev-apps", "configmap/own", ".data.value") != "first" {
		p.t.Error("it has applied nothing")
	}
	const refused = `User "system:serviceaccount:dev-apps:gitops-reconciler" cannot patch resource "configmaps" in API group "" in the namespace "dev-tools"`
	apply("dev-tools")
	p.until("Kustomization/dev-apps/own", "to be refused in dev-tools", func(row flux.Row) bool { return strings.Contains(row.Message, refused) })
}

// testRotation checks that a new token replaces the previous one while Flux reconciles.
func (p proxied) testRotation() {
	const ref = "Kustomization/dev-team/namespaces"
	// At the start of the fleet it may have failed: Flux is faster than the manager.
	failed := p.warnings("dev-team", "Kustomization", "namespaces")
	before := p.field("dev-team", "secret/gitops-reconciler-kubeconfig", ".data.kubeconfig")
	p.kubectl("", "annotate", "--overwrite", "-n", "dev-team", "secret/gitops-reconciler-kubeconfig", "tenure.dev/renew=2020-01-01T00:00:00Z")
	p.kubectl("", "annotate", "--overwrite", "-n", "dev-team", "serviceaccount/gitops-reconciler", "touched=now")
	rounds := 0
	testwait.For(p.t, "another token, while Flux goes on", patience, func() (bool, string) {
		p.reconciled(ref)
		rounds++
		now := p.field("dev-team", "secret/gitops-reconciler-kubeconfig", ".data.kubeconfig")
		return now != "" && now != before, "it is the same"
	})
	p.reconciled(ref)
	p.t.Logf("%d reconciliations until the token was another one, and one more", rounds)
	if diff := cmp.Diff(failed, p.warnings("dev-team", "Kustomization", "namespaces")); diff != "" {
		p.t.Errorf("a reconciliation failed: -events before +after\n%s", diff)
	}
}

// warnings returns the warning events about an object, each with its count.
func (r run) warnings(namespace, kind, name string) []string {
	r.t.Helper()
	out := r.kubectl("", "get", "events", "-n", namespace,
		"--field-selector", "type=Warning,involvedObject.kind="+kind+",involvedObject.name="+name,
		"-o", `jsonpath={range .items[*]}{.metadata.name} {.count} {.message}{"\n"}{end}`)
	return slices.Sorted(strings.Lines(out))
}

// reconciled requests a reconcile of an object and waits until it is done.
func (p proxied) reconciled(ref string) {
	p.t.Helper()
	asked, part := p.ask(ref), strings.Split(ref, "/")
	p.until(ref, "to be reconciled", func(row flux.Row) bool {
		return row.State == flux.Ready && p.field(part[1], part[0]+"/"+part[2], ".status.lastHandledReconcileAt") == asked
	})
}

// requests returns the number of successful requests to the proxy.
func (r run) requests() int {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.address("--metrics-addr")+"/metrics", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	sum := 0
	for _, found := range regexp.MustCompile(`(?m)^tenure_proxy_requests_total\{.*code="2\d\d"\} (\d+)$`).FindAllStringSubmatch(string(body), -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			r.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// testNoOtherWay checks that the proxy counts Flux's requests, and that Flux applies nothing
// while the proxy is stopped.
func (p proxied) testNoOtherWay() {
	const ref = "Kustomization/dev-team/namespaces"
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil || len(config.Clusters) != 1 {
		p.t.Fatalf("the owner's kubeconfig: %v %v", config, err)
	}
	before := p.requests()
	p.reconciled(ref)
	after := p.requests()
	p.t.Logf("%d requests for one reconciliation, %d in all", after-before, after)
	if after == before {
		p.t.Error("Flux has reconciled, and the proxy knows nothing of it")
	}
	p.kubectl("", "scale", "deployment/tenure-proxy", "-n", "flux-system", "--replicas=0")
	testwait.For(p.t, "the proxy to be gone", patience, func() (bool, string) {
		pods := p.kubectl("", "get", "pods", "-n", "flux-system", "-l", "app=tenure-proxy", "-o", "name")
		return pods == "", pods
	})
	p.ask(ref)
	p.until(ref, "to fail without the proxy", func(row flux.Row) bool {
		return row.State == flux.Failed && strings.Contains(row.Message, "tenure-proxy.flux-system.svc:9001")
	})
	p.kubectl("", "scale", "deployment/tenure-proxy", "-n", "flux-system", "--replicas=1")
	testwait.For(p.t, "the proxy to be back", patience, func() (bool, string) {
		ready := p.field("flux-system", "deployment/tenure-proxy", ".status.readyReplicas")
		return ready == "1", ready
	})
	p.reconciled(ref)
}

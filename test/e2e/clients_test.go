package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// clientsTenant is a tenant with an owner, a second namespace, and a sync.
const clientsTenant = `apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: %[1]s}
spec: {owners: [{kind: ServiceAccount, namespace: %[1]s, name: %[1]s}, {kind: Group, name: team-%[1]s}, {kind: Group, name: "oidc:team-%[1]s"}, {kind: Group, name: "oidc:id-of-team-%[1]s"}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-more, labels: {tenure.dev/tenant: %[1]s}}
---
` + tenantManifests

// TestClients lets two tenants use kubectl, helm and flux through the proxy.
func TestClients(t *testing.T) {
	t.Parallel()
	dir, _ := newFleet(t, map[string]string{
		"clusters/test/tenure.yaml":           tenureSync,
		"clusters/test/apps.yaml":             tenantsSync,
		"infrastructure/tenure/crds.yaml":     string(config.CRDs()),
		"infrastructure/tenure/roles.yaml":    string(config.Roles()),
		"infrastructure/tenure/policies.yaml": string(config.Policies()),
		"infrastructure/tenure/manager.yaml":  string(config.Manager()),
		"infrastructure/tenure/proxy.yaml":    string(config.Proxy()),
		"infrastructure/tenure/profile.yaml":  fmt.Sprintf(managedProfile, "https://hooks.example.com"),
		"tenants/one.yaml":                    fmt.Sprintf(clientsTenant, "one"),
		"tenants/two.yaml":                    fmt.Sprintf(clientsTenant, "two"),
		"tenants/dev-team.yaml":               strings.ReplaceAll(fmt.Sprintf(clientsTenant, "dev-team"), "acme/app", "acme/dev-team"),
	})
	edit(t, "  replicas: 2\n", "  replicas: 1\n", dir, "infrastructure", "tenure", "proxy.yaml")
	edit(t, "            - --log-level=info\n", "            - --tls-host="+publicProxy+"\n            - --log-level=info\n", dir, "infrastructure", "tenure", "proxy.yaml")
	provider := startIssuer(t)
	app := newFolder(t, map[string]string{"app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {value: first}\n"})
	day := newFolder(t, map[string]string{"dev-team/app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n"})
	r, failed := start(t, localcluster.Options{Fleet: dir, Path: "clusters/test", Authentication: provider.authentication(t), Maps: parseMaps(t,
		"https://git.example.com/acme/app#main="+app, "https://git.example.com/acme/dev-team#main="+filepath.Join(day, "dev-team"))})
	expectNothing(t, "everything is ready", failed)
	// Flux does not wait for the manager's objects in the namespaces.
	for _, tenant := range []string{"one", "two", "dev-team"} {
		for _, namespace := range []string{tenant, tenant + "-more"} {
			r.untilMay("system:serviceaccount:"+tenant+":"+tenant, "create", "deployments.apps", "-n", namespace)
		}
	}
	one, two := proxied{run: r, kubeconfig: r.ownersKubeconfig("one")}, proxied{run: r, kubeconfig: r.ownersKubeconfig("two")}

	t.Run("helm", func(t *testing.T) { testHelm(one.in(t), two.in(t)) })
	t.Run("kubectl", func(t *testing.T) { testKubectl(one.in(t)) })
	t.Run("flux", func(t *testing.T) { testFluxClient(one.in(t)) })
	t.Run("a day of a team", func(t *testing.T) { testDay(run{t: t, Cluster: r.Cluster}, day) })
	t.Run("port-forward", func(t *testing.T) { testPortForward(run{t: t, Cluster: r.Cluster}) })
	t.Run("load balancer", func(t *testing.T) { testLoadBalancer(run{t: t, Cluster: r.Cluster}) })
	t.Run("node port", func(t *testing.T) { testNodePort(run{t: t, Cluster: r.Cluster}) })
	t.Run("log in", func(t *testing.T) { testLogin(run{t: t, Cluster: r.Cluster}, provider) })
	t.Run("a person", func(t *testing.T) { testPerson(run{t: t, Cluster: r.Cluster}) })
	t.Run("apply", func(t *testing.T) { testApply(one.in(t)) })
	t.Run("kubectl -w", func(t *testing.T) { one.in(t).testWatches("one", "one-watched") })
}

// testDay pastes docs/how-to/work-as-a-team.md into a shell, in a folder with the team's repository.
func testDay(r run, folder string) {
	bin, err := testcluster.BinDir()
	if err != nil {
		r.t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(filepath.Dir(bin), "docs", "how-to", "work-as-a-team.md"))
	if err != nil {
		r.t.Fatal(err)
	}
	content, err := os.ReadFile(r.ownersKubeconfig("dev-team"))
	if err != nil {
		r.t.Fatal(err)
	}
	write(r.t, string(content), folder, "dev-team.kubeconfig")
	shell := exec.CommandContext(r.t.Context(), "bash", "-c", "")
	shell.Dir = folder
	shell.Env = []string{"HOME=" + r.t.TempDir(), "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")}
	if err := paste(r.t, string(page), shell); err != nil {
		r.t.Fatalf("the page does not run: %v", err)
	}
}

// testPortForward uses the proxy from a shell, through kubectl port-forward.
func testPortForward(r run) {
	admin := proxied{run: r, kubeconfig: r.Kubeconfig}
	file := filepath.Join(r.t.TempDir(), "kubeconfig")
	admin.watching("kubectl", []string{"port-forward", "-n", "flux-system", "service/tenure-proxy", ":9001"}, func(line string) bool {
		address, _, found := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ->")
		if !found {
			return false
		}
		r.tenure(r.Kubeconfig, "kubeconfig", "one", "--server", "https://"+address, "--server-name", "tenure-proxy.flux-system.svc", "-o", file)
		out, err := (proxied{run: r, kubeconfig: file}).as("", "get", "namespaces", "-o", "name")
		if diff := cmp.Diff([]string{"namespace/one", "namespace/one-more"}, strings.Fields(out)); err != nil || diff != "" {
			r.t.Errorf("through the port-forward: %v, -want +got:\n%s", err, diff)
		}
		return true
	})
}

// testLoadBalancer uses the proxy from a shell, through a load balancer, with a kubeconfig for which
// no flag names the address.
func testLoadBalancer(r run) {
	admin := proxied{run: r, kubeconfig: r.Kubeconfig}
	admin.runs("kubectl", "patch", "-n", "flux-system", "service/tenure-proxy", "--field-manager=load-balancer", "-p", `{"spec":{"type":"LoadBalancer"}}`)
	// Flux reverts what kubectl changes under its own name.
	admin.runs("flux", "reconcile", "kustomization", "tenure", "--namespace", "flux-system")
	admin.runs("kubectl", "wait", "-n", "flux-system", "service/tenure-proxy", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=5m")
	file := filepath.Join(r.t.TempDir(), "kubeconfig")
	r.tenure(r.Kubeconfig, "kubeconfig", "one", "-o", file)
	testwait.For(r.t, "the load balancer answers", patience, func() (bool, string) {
		out, err := (proxied{run: r, kubeconfig: file}).as("", "get", "namespaces", "-o", "name")
		return err == nil && cmp.Equal([]string{"namespace/one", "namespace/one-more"}, strings.Fields(out)), out
	})
	admin.runs("kubectl", "patch", "-n", "flux-system", "service/tenure-proxy", "-p", `{"spec":{"type":"ClusterIP"}}`)
}

// testNodePort uses the proxy from a shell, through a node port.
func testNodePort(r run) {
	admin := proxied{run: r, kubeconfig: r.Kubeconfig}
	admin.runs("kubectl", "patch", "-n", "flux-system", "service/tenure-proxy", "-p", `{"spec":{"type":"NodePort"}}`)
	node := admin.runs("kubectl", "get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="ExternalIP")].address}`)
	port := admin.runs("kubectl", "get", "-n", "flux-system", "service/tenure-proxy", "-o", "jsonpath={.spec.ports[0].nodePort}")
	file := filepath.Join(r.t.TempDir(), "kubeconfig")
	r.tenure(r.Kubeconfig, "kubeconfig", "one", "--server", "https://"+node+":"+port, "--server-name", "tenure-proxy.flux-system.svc", "-o", file)
	testwait.For(r.t, "the node port answers", patience, func() (bool, string) {
		out, err := (proxied{run: r, kubeconfig: file}).as("", "get", "namespaces", "-o", "name")
		return err == nil && cmp.Equal([]string{"namespace/one", "namespace/one-more"}, strings.Fields(out)), out
	})
	admin.runs("kubectl", "patch", "-n", "flux-system", "service/tenure-proxy", "-p", `{"spec":{"type":"ClusterIP"}}`)
}

// testPerson uses the API server as a person in the group that owns a Tenant.
func testPerson(r run) {
	file := filepath.Join(r.t.TempDir(), "kubeconfig")
	r.tenure(r.Kubeconfig, "kubeconfig", "one", "--as-user", "alice", "--group", "team-one", "-o", file)
	alice := proxied{run: r, kubeconfig: file}
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"alice", []string{"auth", "whoami"}},
		{"team-one", []string{"auth", "whoami"}},
		{"kustomization.kustomize.toolkit.fluxcd.io/app", []string{"get", "kustomizations.kustomize.toolkit.fluxcd.io", "-n", "one", "-o", "name"}},
		{"namespace/one-alice created", []string{"create", "namespace", "one-alice"}},
	} {
		if out := alice.runs("kubectl", tc.args...); !strings.Contains(out, tc.want) {
			r.t.Errorf("kubectl %s lacks %q:\n%s", strings.Join(tc.args, " "), tc.want, out)
		}
	}
	alice.refused("is forbidden", "kubectl", "get", "pods", "-n", "two")
}

// testApply applies a namespace of the tenant from a file, which gets the namespace first.
func testApply(p proxied) {
	manifest := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}"
	}
	if out, err := p.as(manifest("one-applied"), "apply", "-f", "-"); err != nil || !strings.Contains(out, "namespace/one-applied created") {
		p.t.Errorf("apply a namespace: %v %s", err, out)
	}
	testwait.For(p.t, "the owner to apply the namespace again", patience, func() (bool, string) {
		out, err := p.as(manifest("one-applied"), "apply", "-f", "-")
		return err == nil && strings.Contains(out, "namespace/one-applied unchanged"), out
	})
	// two-new does not exist: the answer does not tell.
	for _, name := range []string{"two", "two-new", "flux-system", "kube-new"} {
		if out, err := p.as(manifest(name), "apply", "-f", "-"); err == nil || !strings.Contains(out, `cannot get resource "namespaces"`) {
			p.t.Errorf("apply the namespace %s: %v %s", name, err, out)
		}
	}
	p.refused(`namespaces "one-missing" not found`, "kubectl", "get", "namespace", "one-missing")
	p.runs("kubectl", "delete", "namespace", "one-applied")
}

// client returns a command for a program of bin/ with the owner's kubeconfig and its own home
// folder, where the program caches the API.
func (p proxied) client(ctx context.Context, program string, args ...string) *exec.Cmd {
	p.t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(bin, program)
	if _, err := os.Stat(file); err != nil {
		p.t.Fatalf("%s is not built: run `make clients`: %v", program, err)
	}
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Env = append([]string{
		"KUBECONFIG=" + p.kubeconfig, "HOME=" + filepath.Dir(p.kubeconfig),
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), // kubectl and its plugin, for a login
	}, p.env...)
	return cmd
}

// program runs a program as the owner and returns both its streams.
func (p proxied) program(program string, args ...string) (out, errs string, err error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), hung)
	defer cancel()
	var both [2]strings.Builder
	cmd := p.client(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &both[0], &both[1]
	err = errors.Join(cmd.Run(), ctx.Err())
	return both[0].String(), both[1].String(), err
}

// runs returns the standard output of a program that must succeed.
func (p proxied) runs(program string, args ...string) string {
	p.t.Helper()
	out, errs, err := p.program(program, args...)
	if err != nil {
		p.t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, errs)
	}
	return out
}

// refused runs a program that must fail, with the given reason in its output.
func (p proxied) refused(why, program string, args ...string) {
	p.t.Helper()
	out, errs, err := p.program(program, args...)
	if err == nil || !strings.Contains(errs, why) {
		p.t.Errorf("%s %s: want the refusal %q, got %v\n%s%s", program, strings.Join(args, " "), why, err, out, errs)
	}
}

// watching runs a program that does not end by itself, and passes its lines to enough until
// that returns true.
func (p proxied) watching(program string, args []string, enough func(line string) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	cmd := p.client(ctx, program, args...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was ended
	}()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if enough(lines.Text()) {
			return
		}
	}
	p.t.Errorf("%s %s ended before it had shown everything: %v", program, strings.Join(args, " "), ctx.Err())
}

// table returns the sorted rows of a table whose cells have no spaces.
func table(text string) []string {
	var rows []string
	for line := range strings.Lines(text) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(rows)
	return rows
}

// testKubectl runs kubectl commands that TestKubectl in internal/proxy does not cover.
// testHelm has left a Deployment in each tenant.
func testKubectl(p proxied) {
	for _, tc := range []struct {
		reason string
		args   []string
		want   []string
	}{
		{"the tenant's namespaces", []string{"get", "ns", "--no-headers", "-o", "custom-columns=N:.metadata.name"}, []string{"one", "one-more"}},
		{"Pods in all namespaces, as a table", []string{"get", "pods", "-A", "--no-headers", "-L", "app.kubernetes.io/instance"}, []string{"one-more/mine"}},
		{"several kinds in all namespaces", []string{"get", "deployments,services", "-A", "-o", "name"}, []string{"deployment.apps/mine", "service/mine"}},
		{"reads that the proxy answers", []string{"auth", "can-i", "list", "pods", "-A"}, []string{"yes"}},
		{"rights in a namespace", []string{"auth", "can-i", "create", "deployments", "-n", "one-more"}, []string{"yes"}},
		{"the node's log of a Pod, followed to its end", []string{"logs", "-f", "-n", "one-more", "deployment/mine"}, []string{"This container is simulated: the local cluster runs only Flux and Tenure, so there is no output."}},
	} {
		got := table(p.runs("kubectl", tc.args...))
		if strings.HasPrefix(tc.reason, "Pods") {
			for i, row := range got {
				cells := strings.Fields(row)
				got[i] = cells[0] + "/" + cells[len(cells)-1]
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			p.t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
		}
	}
	const mine = "{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}"
	for _, namespace := range []string{"two", "flux-system"} {
		if out, err := p.as("", "auth", "can-i", "get", "secrets", "-n", namespace); err == nil || !strings.HasPrefix(out, "no") {
			p.t.Errorf("can-i get secrets in %s: %v %s", namespace, err, out)
		}
		p.refused("is forbidden", "kubectl", "get", "pods", "-n", namespace)
		p.refused("is forbidden", "kubectl", "logs", "-f", "-n", namespace, "any")
		p.refused("is forbidden", "kubectl", "exec", "-n", namespace, "any", "--", "true")
		p.refused("is forbidden", "kubectl", "port-forward", "-n", namespace, "pod/any", ":80")
		if out, err := p.as(mine, "apply", "--server-side", "-n", namespace, "-f", "-"); err == nil || !strings.Contains(out, "forbidden") {
			p.t.Errorf("apply in %s: %v %s", namespace, err, out)
		}
	}
	p.refused("nodes is forbidden", "kubectl", "get", "nodes")
	p.refused("Metrics API not available", "kubectl", "top", "pods", "-A")
	if out, err := p.as(mine, "apply", "--server-side", "-n", "one", "-f", "-"); err != nil {
		p.t.Errorf("apply in the tenant's own namespace: %v %s", err, out)
	}
	// This node has no containers. The node's error shows that the request reached it.
	p.refused("the local cluster has no containers: exec is not possible", "kubectl", "exec", "-n", "one-more", "deployment/mine", "--", "true")
}

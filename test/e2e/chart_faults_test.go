package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"sigs.k8s.io/yaml"
)

const (
	// notReady is what helm says of an upgrade whose Pods do not become ready.
	notReady = "Deployment/flux-system/tenure-manager not ready"
	// Objects of Capsule, as its chart installs them.
	capsuleWebhooks = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: capsule-validating-webhook-configuration}
webhooks: []
`
	capsuleKind = "customresourcedefinition/tenants.capsule.clastix.io"
)

// helmFaults installs the chart with helm on a cluster that has the kinds of Flux.
type helmFaults struct {
	run

	home string
	// later is the folder of a later version of the chart.
	later string
}

// TestChartFaults installs and upgrades the chart with helm where something is in the way, or ends
// halfway, and goes the way out that docs/how-to/install.md describes.
func TestChartFaults(t *testing.T) {
	t.Parallel()
	h := &helmFaults{run: run{t: t, Cluster: testcluster.Start(t, localcluster.Options{})}, home: t.TempDir(), later: laterChart(t)}
	script{
		{"Flux's kinds and Capsule are there", h.prepares},
		{"a user without rights is refused", func() {
			h.refuses("is forbidden", h.install("--kube-as-user=jane")...)
		}},
		{"Capsule's kinds are not taken over", func() {
			h.refuses(`current value is "capsule"`, h.install("--set=capsule.enabled=true")...)
			h.capsuleIsThere()
		}},
		{"an installation ends at each step, and again", h.installs},
		{"a tenant is isolated, beside Capsule", func() {
			h.kubectl(chartTenant, "apply", "-f", "-")
			h.untilMay("alice", "create", "gitrepositories.source.toolkit.fluxcd.io", "-n", "team-apps")
			h.refusesAttack()
			h.capsuleIsThere()
		}},
		{"the API server restarts", h.restarts},
		{"Pods of an upgrade do not start", h.doesNotStart},
		{"Capsule's kinds are taken over while Capsule is there", h.takesOver},
		{"an upgrade ends at each step, and again, under attack", h.upgrades},
		{"the cluster is lost, and restored from a backup", h.restores},
	}.run(t)
}

// laterChart returns a copy of the chart in which nearly all objects have another label, and the
// rules other messages.
func laterChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tenure")
	if err := os.CopyFS(dir, os.DirFS(chartFolder(t))); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "templates", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`(?m)^( +)app\.kubernetes\.io/name: tenure$`)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := label.ReplaceAllString(string(content), "$0\n${1}app.kubernetes.io/version: later")
		write(t, strings.ReplaceAll(text, " must not ", " may not "), file)
	}
	return dir
}

// prepares installs the kinds of Flux, and the kinds and the webhook of Capsule.
func (h *helmFaults) prepares() {
	var kinds strings.Builder
	for _, manifests := range [][]byte{config.FluxComponents(), config.CapsuleCRDs()} {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, o := range objects {
			if o.GetKind() != "CustomResourceDefinition" {
				continue
			}
			if strings.HasSuffix(o.GetName(), ".capsule.clastix.io") {
				o.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
				o.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "capsule", "meta.helm.sh/release-namespace": "capsule-system"})
			}
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				h.t.Fatal(err)
			}
			kinds.WriteString("---\n" + string(text))
		}
	}
	h.kubectl(kinds.String(), "create", "--field-manager=helm", "-f", "-")
	h.kubectl(capsuleWebhooks, "create", "-f", "-")
}

// capsuleIsThere checks that nothing has changed Capsule's kinds.
func (h *helmFaults) capsuleIsThere() {
	h.t.Helper()
	if got := h.field("", capsuleKind, ".metadata.annotations"); !strings.Contains(got, `"meta.helm.sh/release-name":"capsule"`) {
		h.t.Errorf("Capsule's kind has the annotations %s", got)
	}
	if got := h.field("", capsuleKind, ".metadata.generation"); got != "1" {
		h.t.Errorf("Capsule's kind has the generation %s", got)
	}
}

// install returns the arguments of an installation.
func (h *helmFaults) install(more ...string) []string {
	return append([]string{"install", "tenure", chartFolder(h.t), "--namespace=flux-system", "--create-namespace", "--wait", atMost}, more...)
}

// upgrade returns the arguments of an upgrade to a chart.
func (h *helmFaults) upgrade(chart string, more ...string) []string {
	return append([]string{"upgrade", "tenure", chart, "--namespace=flux-system", "--reset-then-reuse-values", "--wait"}, more...)
}

// command returns a helm that ends with the context.
func (h *helmFaults) command(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	h.t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "helm"), args...)
	cmd.Env = []string{"HOME=" + h.home, "KUBECONFIG=" + kubeconfig, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// succeeds runs helm, which must succeed.
func (h *helmFaults) succeeds(args ...string) {
	h.t.Helper()
	if out, err := h.command(h.t.Context(), h.Kubeconfig, args...).CombinedOutput(); err != nil {
		h.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// refuses runs helm, which must fail with the reason.
func (h *helmFaults) refuses(why string, args ...string) {
	h.t.Helper()
	out, err := h.command(h.t.Context(), h.Kubeconfig, args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), why) {
		h.t.Errorf("helm %s: want the refusal %q, got %v and\n%s", strings.Join(args, " "), why, err, out)
	}
}

// interrupted runs helm, and kills it before its next write after a number of writes. It returns the
// number of writes, and whether helm was killed.
func (h *helmFaults) interrupted(writes int, args ...string) (served int, killed bool) {
	h.t.Helper()
	ctx, kill := context.WithCancel(h.t.Context())
	defer kill()
	i := h.interrupt(writes, kill)
	out, err := h.command(ctx, i.kubeconfig, args...).CombinedOutput()
	if !i.ended() && err != nil {
		h.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return i.writes(), i.ended()
}

// installs lets installations end after more and more of their writes. Whatever they leave, the next
// one works, after helm has removed the record of the last one.
func (h *helmFaults) installs() {
	const inUse = "cannot reuse a name that is still in use"
	recorded := 0
	for writes := 0; ; writes += *interrupts {
		served, killed := h.interrupted(writes, h.install()...)
		if !killed {
			h.t.Logf("an installation has %d writes", served)
			break
		}
		if out, err := h.command(h.t.Context(), h.Kubeconfig, "status", "tenure", "--namespace=flux-system").CombinedOutput(); err != nil {
			h.t.Logf("after %d writes helm knows no release: %s", writes, strings.TrimSpace(string(out)))
			continue
		}
		recorded++
		h.refuses(inUse, h.install()...)
		h.succeeds("uninstall", "tenure", "--namespace=flux-system")
	}
	if recorded < 3 {
		h.t.Errorf("helm has recorded only %d installations that were not complete", recorded)
	}
}

// holds checks that the manager before an upgrade serves, and that the rules are in force.
func (h *helmFaults) holds() {
	h.t.Helper()
	if got := h.field("flux-system", "deployment/tenure-manager", ".status.readyReplicas"); got != "2" {
		h.t.Errorf("%q replicas of the manager are ready, want 2", got)
	}
	if out, err := kubectl(h.t, h.Cluster, "", "create", "namespace", "team-more", "--as=alice", "--dry-run=server"); err != nil {
		h.t.Errorf("the owner cannot create a namespace: %v\n%s", err, out)
	}
	h.refusesAttack()
}

// restarts kills the API server. The manager makes the next Tenant, once the API server has found the
// kind TenancyProfile, for which it looks every 30 s.
func (h *helmFaults) restarts() {
	kill(h.t, h.Dir, "kube-apiserver")
	testwait.For(h.t, "the API server to answer", patience, func() (bool, string) {
		out, err := kubectl(h.t, h.Cluster, "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: next}, spec: {owners: [{kind: User, name: ann}], namespaces: {create: [next-apps]}}}", "apply", "-f", "-")
		return err == nil, out
	})
	h.kubectl("", "wait", "tenants.tenure.dev/next", "--for=condition=Ready", atMost)
	h.kubectl("", "-n", "flux-system", "rollout", "status", "deployment/tenure-manager", atMost)
	h.holds()
}

// doesNotStart upgrades to an image that no node can pull. The local cluster pulls no images: that no
// new Pod finds a node has the same effect, a Pod that does not become ready.
func (h *helmFaults) doesNotStart() {
	node := h.kubectl("", "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
	h.kubectl("", "cordon", node)
	h.refuses(notReady, h.upgrade(chartFolder(h.t), "--set=image.repository=registry.example.com/none/tenure-server", "--set=image.tag=none", "--timeout=20s")...)
	h.holds()
	h.succeeds("rollback", "tenure", "--namespace=flux-system", "--wait", atMost)
	h.kubectl("", "uncordon", node)
	h.holds()
}

// takesOver enables the layer for Capsule, and lets helm take over the kinds, while Capsule is there.
// The new manager says so and does not become ready.
func (h *helmFaults) takesOver() {
	h.refuses(notReady, h.upgrade(chartFolder(h.t), "--set=capsule.enabled=true", "--take-ownership", "--force-conflicts", "--timeout=30s")...)
	testwait.For(h.t, "the new manager to say why it does not run", patience, func() (bool, string) {
		logs := h.kubectl("", "-n", "flux-system", "logs", "-l", "app=tenure-manager", "--tail=-1", "--prefix")
		return strings.Contains(logs, "Capsule itself is in this cluster"), logs
	})
	h.holds()
	h.succeeds("rollback", "tenure", "--namespace=flux-system", "--wait", atMost)
	h.holds()
	if got := h.field("", capsuleKind, ".metadata.name"); got == "" {
		h.t.Error("the rollback has deleted Capsule's kinds")
	}
}

// upgrades lets upgrades end after more and more of their writes, and goes back each time. The rules
// are in force all the time.
func (h *helmFaults) upgrades() {
	calm := h.attacked("the upgrades that end")
	for writes := 1; ; writes += *interrupts {
		served, killed := h.interrupted(writes, h.upgrade(h.later, atMost)...)
		if !killed {
			h.t.Logf("an upgrade has %d writes", served)
			break
		}
		h.refusesAttack()
		h.refuses("another operation (install/upgrade/rollback) is in progress", h.upgrade(h.later, atMost)...)
		h.succeeds("rollback", "tenure", "--namespace=flux-system", "--wait", atMost)
	}
	if got := h.field("flux-system", "deployment/tenure-manager", `.metadata.labels.app\.kubernetes\.io/version`); got != "later" {
		h.t.Errorf("after the upgrade the manager has the version %q", got)
	}
	h.holds() // the API server has read the later rules
	calm()
}

// restores makes a new cluster from a backup, with the commands of docs/how-to/operate.md. The
// TenancyProfile is there already, and the other objects have the status and the finalizers of the lost
// cluster.
func (h *helmFaults) restores() {
	h.kubectl("{apiVersion: tenure.dev/v1alpha1, kind: SourceGrant, metadata: {name: common, namespace: default}, spec: {to: [{kind: GitRepository, name: common}], from: [{tenant: team}]}}", "apply", "-f", "-")
	h.kubectl("", "patch", "tenancyprofile/default", "--type=merge", "-p", `{"spec":{"tenants":{"sources":{"git":["https://git.example.com/acme/*"]}}}}`)
	h.operates("kubectl get tenants.tenure.dev,tenancyprofiles,sourcegrants")
	fresh := &helmFaults{run: run{t: h.t, Cluster: testcluster.Start(h.t, localcluster.Options{})}, home: h.home}
	fresh.prepares()
	fresh.succeeds(fresh.install()...)
	fresh.operates("kubectl apply --server-side --force-conflicts -f tenure-backup.yaml")
	fresh.kubectl("", "wait", "tenants.tenure.dev/team", "--for=condition=Ready", atMost)
	fresh.untilMay("alice", "create", "gitrepositories.source.toolkit.fluxcd.io", "-n", "team-apps")
	testwait.For(h.t, "the address of the restored profile to be accepted", patience, func() (bool, string) {
		out, err := kubectl(h.t, fresh.Cluster, chartSource, "apply", "-f", "-", "--as=alice", "--dry-run=server")
		return err == nil, out
	})
	fresh.refusesAttack()
	if got := fresh.field("default", "sourcegrant/common", ".spec.from[0].tenant"); got != "team" {
		h.t.Errorf("the restored grant is for %q", got)
	}
}

// operates runs the command of docs/how-to/operate.md that begins with the words.
func (h *helmFaults) operates(begins string) {
	h.t.Helper()
	content, err := os.ReadFile(filepath.Join(sourcesOf(h.t), "docs", "how-to", "operate.md"))
	if err != nil {
		h.t.Fatal(err)
	}
	bin, err := testcluster.BinDir()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, command := range commandsIn(string(content)) {
		if !strings.HasPrefix(command, begins) {
			continue
		}
		cmd := exec.CommandContext(h.t.Context(), "bash", "-o", "pipefail", "-c", command)
		cmd.Dir, cmd.Env = h.home, []string{"HOME=" + h.home, "KUBECONFIG=" + h.Kubeconfig, "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil {
			h.t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return
	}
	h.t.Fatalf("operate.md has no command that begins with %q", begins)
}

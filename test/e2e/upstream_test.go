package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/client-go/tools/clientcmd"
)

// shell runs a command line of tenure like a user, in the repository's root with bin in PATH,
// and returns its output and exit code. It kills the command after the limit.
func shell(t *testing.T, home string, limit time.Duration, line string) (string, int) {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TENURE_HOME="+home, "PATH="+filepath.Join(root, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// shortDir returns a temporary folder with a path short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// expectGone checks that no process uses the state folder and that the folder has been
// removed.
func expectGone(t *testing.T, home string) {
	t.Helper()
	testwait.For(t, "every process of the cluster to be gone", moment, func() (bool, string) {
		out, err := exec.CommandContext(t.Context(), "ps", "-axww", "-o", "pid=,args=").Output()
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, home+"/") {
				left = append(left, line)
			}
		}
		return len(left) == 0, strings.Join(left, "")
	})
	if left, _ := filepath.Glob(filepath.Join(home, "*")); len(left) > 0 {
		t.Errorf("files are left behind: %q", left)
	}
}

// TestMultiTenancyUnchanged runs an old fleet with the command line of the documentation. It
// checks that the platform's part works, and that the tenant's part reports why it fails with
// the current Flux.
func TestMultiTenancyUnchanged(t *testing.T) {
	t.Parallel()
	fluxAged.any(t, testMultiTenancyUnchanged)
}

func testMultiTenancyUnchanged(t *testing.T, f foreign) {
	home := shortDir(t)
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(home, "default")); err == nil { // the test has ended early
			shell(t, home, patience, "tenure down")
		}
	})
	line := "tenure up" + f.flags() + " --assume flux-system/kyverno --assume flux-system/kyverno-policies"
	out, code := shell(t, home, 2*patience, line+" --detach")
	if code != 1 {
		t.Errorf("exit code %d, want 1 since a tenant is not ready:\n%s", code, out)
	}
	// Two objects are too old; kustomize-controller names either.
	old := regexp.MustCompile(`HelmRepository/apps/podinfo dry-run failed: no matches for kind "HelmRepository" in version "source.toolkit.fluxcd.io/v1beta1"` +
		`|HelmRelease/apps/podinfo dry-run failed: no matches for kind "HelmRelease" in version "helm.toolkit.fluxcd.io/v2beta1"`)
	_, said, _ := strings.Cut(out, "Kustomization/apps/dev-team: ")
	if at := old.FindStringIndex(said); at == nil || at[0] != 0 {
		t.Errorf("what is wrong is not printed:\n%s", out)
	}

	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(home, "default", "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	r := run{&localcluster.Cluster{REST: config}, t}
	got := map[string]string{}
	for _, row := range r.rows() {
		got[row.Ref().String()] = row.State.String()
	}
	want := map[string]string{
		"GitRepository/flux-system/flux-system":      "ready",
		"Kustomization/flux-system/flux-system":      "ready",
		"Kustomization/flux-system/kyverno":          "suspended",
		"Kustomization/flux-system/kyverno-policies": "suspended",
		"Kustomization/flux-system/tenants":          "ready",
		"GitRepository/apps/dev-team":                "ready",
		"Kustomization/apps/dev-team":                "failed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the states of the objects: -want +got:\n%s", diff)
	}
	if row, _ := r.row("GitRepository/apps/dev-team"); !strings.HasPrefix(row.Revision, "dev-team@sha1:") {
		t.Errorf("the tenant's repository has revision %q, want one of its branch", row.Revision)
	}
	if row, _ := r.row("Kustomization/apps/dev-team"); !old.MatchString(row.Message) {
		t.Errorf("the tenant's Kustomization says %q", row.Message)
	}
	if out, code := shell(t, home, patience, "tenure down"); code != 0 {
		t.Errorf("tenure down ends with %d: %s", code, out)
	}
	expectGone(t, home)
}

// TestMultiTenancyConverted checks that the same fleet with API versions that Flux serves
// becomes ready.
func TestMultiTenancyConverted(t *testing.T) {
	t.Parallel()
	fluxShape.any(t, testMultiTenancyConverted)
}

func testMultiTenancyConverted(t *testing.T, f foreign) {
	opts := f.options(t, f.podinfo+"="+podinfoCharts(t))
	opts.Assume = []string{"flux-system/kyverno", "flux-system/kyverno-policies"}
	r, failed := start(t, opts)
	expectNothing(t, "the converted fleet becomes ready altogether", failed)
	if row, _ := r.row("HelmRelease/apps/podinfo"); row.State != flux.Ready || row.Revision != "6.9.0" {
		t.Errorf("podinfo is %s at %q: %s", row.State, row.Revision, row.Message)
	}
	if ready := r.field("apps", "deployment/podinfo", ".status.readyReplicas"); ready != "1" {
		t.Errorf("podinfo has %q ready Pods, want the one of staging", ready)
	}
}

// podinfoCharts returns a folder with a chart that replaces podinfo's.
func podinfoCharts(t *testing.T) string {
	t.Helper()
	charts := t.TempDir()
	writeChart(t, charts, "podinfo", "6.9.0", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: podinfo}
spec:
  replicas: {{ .Values.replicaCount }}
  selector: {matchLabels: {app: podinfo}}
  template:
    metadata: {labels: {app: podinfo}}
    spec: {containers: [{name: podinfo, image: images.example.com/podinfo:1}]}
`)
	return charts
}

func writeChart(t *testing.T, dir, name, version, template string) {
	t.Helper()
	write(t, "apiVersion: v2\nname: "+name+"\nversion: "+version+"\n", dir, name, "Chart.yaml")
	write(t, template, dir, name, "templates", "objects.yaml")
}

// TestCapsuleUnchanged checks that a Capsule fleet of 2022 fails at its root on the current
// Flux.
func TestCapsuleUnchanged(t *testing.T) {
	t.Parallel()
	capsuleAged.any(t, testCapsuleAged)
}

func testCapsuleAged(t *testing.T, f foreign) {
	home := shortDir(t)
	out, code := shell(t, home, 2*patience, "tenure up"+f.flags())
	if code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", code, out)
	}
	for _, part := range []string{
		"clusters/staging/flux-system/gotk-sync.yaml",
		"GitRepository flux-system/flux-system has apiVersion source.toolkit.fluxcd.io/v1beta2",
		"Kustomization flux-system/flux-system has apiVersion kustomize.toolkit.fluxcd.io/v1beta2",
		"does not serve any more", "change it to kustomize.toolkit.fluxcd.io/v1", "flux migrate -f .",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("the message lacks %q:\n%s", part, out)
		}
	}
	expectGone(t, home)
}

// capsuleKinds are the CRDs of Capsule's chart.
const capsuleKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tenants.capsule.clastix.io}
spec:
  group: capsule.clastix.io
  scope: Cluster
  names: {kind: Tenant, plural: tenants}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: capsuleconfigurations.capsule.clastix.io}
spec:
  group: capsule.clastix.io
  scope: Cluster
  names: {kind: CapsuleConfiguration, plural: capsuleconfigurations}
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// capsuleCharts returns a folder with charts that have Capsule's kinds and no controller.
func capsuleCharts(t *testing.T) string {
	t.Helper()
	charts := t.TempDir()
	writeChart(t, charts, "capsule", "0.1.0", capsuleKinds)
	writeChart(t, charts, "capsule-proxy", "0.1.0", "")
	return charts
}

// TestCapsuleConverted runs the converted Capsule fleet, with charts that have Capsule's kinds
// and no controller. It checks that the platform's part becomes ready, and that the tenant
// waits for the kubeconfig that Capsule's addon would create.
func TestCapsuleConverted(t *testing.T) {
	t.Parallel()
	capsuleShape.any(t, testCapsuleConverted)
}

func testCapsuleConverted(t *testing.T, f foreign) {
	r, failed := start(t, f.options(t, f.capsule+"="+capsuleCharts(t)))
	const tenant = "Kustomization/dev-team/dev-team"
	if reason := failed[tenant]; !strings.Contains(reason, `"gitops-reconciler-kubeconfig" not found`) {
		t.Errorf("the tenant's Kustomization says %q, want which Secret is missing", reason)
	}
	delete(failed, tenant)
	expectNothing(t, "everything but the tenant becomes ready", failed)
	if row, _ := r.row("GitRepository/dev-team/dev-team"); !strings.HasPrefix(row.Revision, "dev-team@sha1:") {
		t.Errorf("the tenant's repository has revision %q, want one of its branch", row.Revision)
	}
}

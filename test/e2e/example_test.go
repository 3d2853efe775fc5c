package e2e

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// crossing is a tenant's Kustomization with another tenant's source.
const crossing = `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: crossing, namespace: apps}
spec:
  interval: 1h
  path: ./internal
  prune: true
  targetNamespace: apps
  serviceAccountName: dev-team
  sourceRef: {kind: GitRepository, name: billing, namespace: billing}
`

// internalNote is an object in the other tenant's repository.
const internalNote = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: internal-note}\ndata: {margin: low}\n"

const asDevTeam = "--as=system:serviceaccount:apps:dev-team"

// TestExampleFleet runs the staging cluster of the example fleet, with one tenant's repository
// as a plain folder and another's as a Git work tree. The subtests depend on their order.
func TestExampleFleet(t *testing.T) {
	t.Parallel()
	e := copyExample(t)
	write(t, internalNote, e.billing, "internal", "note.yaml")
	git(t, e.billing, "init", "-q", "-b", "main")
	git(t, e.billing, "add", ".")
	git(t, e.billing, "commit", "-q", "-m", "begin")
	r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing="+e.billing))
	expectNothing(t, "the example fleet becomes ready altogether", failed)

	t.Run("Decrypted", func(t *testing.T) {
		encoded := r.with(t).field("billing", "secret/credentials", ".data.database-password")
		plain, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || string(plain) != "not-a-secret-of-anybody" {
			t.Errorf("the decrypted password is %q, %v", plain, err)
		}
	})
	t.Run("PreRelease", func(t *testing.T) {
		r := r.with(t)
		row, _ := r.row("HelmRelease/apps/web")
		if row.Revision != "1.1.0-rc.1" {
			t.Errorf("staging has chart version %q, want the pre-release", row.Revision)
		}
		if label := r.field("apps", "deployment/web", `.metadata.labels.helm\.sh/chart`); label != "web-1.1.0-rc.1" {
			t.Errorf("the release's Deployment is of chart %q", label)
		}
		if ready := r.field("apps", "deployment/web", ".status.readyReplicas"); ready != "1" {
			t.Errorf("the release has %q ready Pods, want 1", ready)
		}
	})
	t.Run("Logs", func(t *testing.T) {
		out := r.with(t).kubectl("", "-n", "flux-system", "logs", "deployment/kustomize-controller")
		if !strings.Contains(out, `"msg":"server-side apply completed"`) {
			t.Errorf("kubectl logs does not show the controller's log:\n%s", out)
		}
	})
	t.Run("Lockdown", func(t *testing.T) { testLockdown(r.with(t)) })
	t.Run("CrossingRefused", func(t *testing.T) {
		r := r.with(t)
		r.kubectl(crossing, asDevTeam, "apply", "-f", "-")
		r.until("Kustomization/apps/crossing", "to be refused", func(row flux.Row) bool {
			return row.State == flux.Failed && strings.Contains(row.Message, "cross-namespace references have been blocked")
		})
		if r.field("apps", "configmap/internal-note", ".data.margin") != "" {
			t.Error("the other tenant's content has been applied all the same")
		}
		r.kubectl("", "-n", "apps", "delete", "kustomization", "crossing", atMost)
	})
	t.Run("SavedFile", func(t *testing.T) {
		r := r.with(t)
		edit(t, "LOG_LEVEL=debug", "LOG_LEVEL=saved", e.devTeam, "staging", "kustomization.yaml")
		r.applied("a saved file of a plain folder", patience, func() bool {
			return strings.Contains(r.kubectl("", "-n", "apps", "get", "configmaps", "-o", "jsonpath={.items[*].data.LOG_LEVEL}"), "saved")
		})
	})
	t.Run("WorkTree", func(t *testing.T) { testWorkTree(r.with(t), e.billing) })
	t.Run("OtherBranch", func(t *testing.T) { testOtherBranch(r.with(t), e.billing) })
	expectNothing(t, "everything is ready again after the changes", r.settle())
}

// testLockdown checks the controllers' Pods and processes.
func testLockdown(r run) {
	noCross, account := "--no-cross-namespace-refs=true", "--default-service-account=default"
	for controller, flags := range map[string][]string{
		"source-controller":       nil, // has none of these flags
		"kustomize-controller":    {noCross, account, "--no-remote-bases=true", "--requeue-dependency=5s"},
		"helm-controller":         {noCross, account, "--requeue-dependency=5s"},
		"notification-controller": {noCross},
	} {
		p := r.processOf(controller)
		if !strings.HasSuffix(p.command[0], "/tenure-flux") || p.command[1] != controller {
			r.t.Errorf("%s is the process %s", controller, p.command[:2])
		}
		for _, flag := range flags {
			if !slices.Contains(p.args, flag) || !slices.Contains(p.command, flag) {
				r.t.Errorf("%s lacks %s\nPod: %q\nprocess: %q", controller, flag, p.args, p.command)
			}
		}
		if slices.ContainsFunc(p.command, func(arg string) bool { return strings.HasPrefix(arg, "--enable-leader-election") }) {
			r.t.Errorf("%s elects a leader, which cannot work on a host: %q", controller, p.command)
		}
	}
}

// applied waits for the effect of a recent change and logs the duration. The bound is
// generous: a benchmark measures the goal of two seconds.
func (r run) applied(what string, bound time.Duration, done func() bool) {
	r.t.Helper()
	began := time.Now()
	testwait.For(r.t, what+" to be applied", bound, func() (bool, string) { return done(), "nothing has changed" })
	r.t.Logf("%s was applied after %.2fs", what, time.Since(began).Seconds())
}

// testWorkTree changes a Git work tree, first without a commit, then with one.
func testWorkTree(r run, dir string) {
	edit(r.t, "value: true", "value: false", dir, "staging", "kustomization.yaml")
	r.applied("a saved file of a work tree", patience, func() bool {
		return r.field("billing", "cronjob/invoices", ".spec.suspend") != "true"
	})
	git(r.t, dir, "commit", "-q", "-a", "-m", "run the invoices")
	head := git(r.t, dir, "rev-parse", "HEAD")
	row := r.until("GitRepository/billing/billing", "to be at the user's own commit", func(row flux.Row) bool {
		return row.Revision == "main@sha1:"+head
	})
	r.until("Kustomization/billing/billing", "to have applied the commit", func(k flux.Row) bool {
		return k.Revision == row.Revision && k.State == flux.Ready
	})
}

// testOtherBranch commits to a branch that is not checked out.
func testOtherBranch(r run, dir string) {
	commit := func(parent, message string) string {
		id := git(r.t, dir, "commit-tree", "HEAD^{tree}", "-p", parent, "-m", message)
		git(r.t, dir, "update-ref", "refs/heads/next", id)
		return id
	}
	first := commit("HEAD", "first")
	r.kubectl(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: next, namespace: billing}
spec: {interval: 1h, url: "https://git.example.com/acme/billing", ref: {branch: next}}
`, "apply", "-f", "-")
	at := func(id string) func(flux.Row) bool {
		return func(row flux.Row) bool { return row.Revision == "next@sha1:"+id }
	}
	r.until("GitRepository/billing/next", "to be at the branch's commit", at(first))
	began := time.Now()
	r.until("GitRepository/billing/next", "to follow the branch", at(commit(first, "second")))
	r.t.Logf("a commit to another branch was fetched after %.2fs", time.Since(began).Seconds())
}

// TestFleetDecidesTheFlags runs the production cluster without the flag that isolates tenants.
// It accepts the same object that staging refuses, since the fleet sets the flags.
func TestFleetDecidesTheFlags(t *testing.T) {
	t.Parallel()
	e := copyExample(t)
	write(t, internalNote, e.billing, "internal", "note.yaml")
	edit(t, "--no-cross-namespace-refs=true", "--no-cross-namespace-refs=false",
		e.platform, "clusters", "production", "flux-system", "kustomization.yaml")
	r, failed := start(t, e.options(t, "clusters/production", "https://git.example.com/acme/billing#main="+e.billing))
	expectNothing(t, "the production cluster becomes ready altogether", failed)

	if row, _ := r.row("HelmRelease/apps/web"); row.Revision != "1.0.0" {
		t.Errorf("production has chart version %q, want the release", row.Revision)
	}
	p := r.processOf("kustomize-controller")
	if !slices.Contains(p.command, "--no-cross-namespace-refs=false") {
		t.Errorf("the process does not have the fleet's flag: %q", p.command)
	}
	r.kubectl(crossing, asDevTeam, "apply", "-f", "-")
	r.until("Kustomization/apps/crossing", "to be let through", func(row flux.Row) bool { return row.State == flux.Ready })
	if got := r.field("apps", "configmap/internal-note", ".data.margin"); got != "low" {
		t.Errorf("the other tenant's content is %q, want that it has been applied", got)
	}
}

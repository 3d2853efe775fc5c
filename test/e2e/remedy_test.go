package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/verify/autofix"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// teams are the folders of the example's tenants, by namespace.
var teams = map[string]string{"apps": "dev-team", "apps-preview": "dev-team-preview", "billing": "billing"}

// unlock removes every control from the example's files: Flux's default installation, no
// policies, cluster-admin for all tenants, no Pod Security.
func unlock(t *testing.T, e example) {
	t.Helper()
	write(t, `# Flux as it comes.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - gotk-components.yaml
  - gotk-sync.yaml
`, e.platform, "clusters", "staging", "flux-system", "kustomization.yaml")
	write(t, "resources: [tenant-role.yaml]\n", e.platform, "infrastructure", "policies", "kustomization.yaml")
	enforce := "    pod-security.kubernetes.io/enforce: restricted\n"
	for _, team := range teams {
		edit(t, "name: acme-tenant", "name: cluster-admin", e.platform, "tenants", "base", team, "rbac.yaml")
		edit(t, enforce, "", e.platform, "tenants", "base", team, "namespace.yaml")
	}
	edit(t, enforce, "", e.bootstrap, "billing.yaml")
}

// widen adds rights to the tenants' role of the example that it lacks on purpose, and removes
// one flag.
func widen(t *testing.T, e example) {
	t.Helper()
	role := filepath.Join(e.platform, "infrastructure", "policies", "tenant-role.yaml")
	edit(t, "      - configmaps\n", "      - configmaps\n      - namespaces\n", role)
	edit(t, "[gitrepositories, helmcharts, helmrepositories]", "['*']", role)
	content, err := os.ReadFile(role)
	if err != nil {
		t.Fatal(err)
	}
	write(t, string(content)+"  - apiGroups: ['']\n    resources: [serviceaccounts, serviceaccounts/token]\n    verbs: ['*']\n", role)
	edit(t, "--no-cross-namespace-refs=true", "--no-cross-namespace-refs=false", e.platform, "clusters", "staging", "flux-system", "kustomization.yaml")
}

// TestPatches attacks fleets that lack controls, applies the printed patch to the running
// fleet, and checks that the attacks that the patch closes are stopped. Flux has to apply the
// patch, including changed roles of bindings.
func TestPatches(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason       string
		change       func(*testing.T, example)
		through      []string
		stays        []string // in addition to plain; no patch closes these
		clusterAdmin bool
	}{
		"no lockdown": {
			reason:       "a fleet without any lockdown",
			change:       unlock,
			through:      []string{"A2-api", "A5-api", "I1-api", "I1-api-HelmRelease", "I4-api-RoleBinding", "I6-api", "I8-api", "I13-api", "I18-api", "N1-api", "N2-api", "N7-api", "S1-api", "S1-api-HelmRelease", "S3-api", "S4-api", "S7-git", "S9-api", "W1-api", "W3-api", "W3-git", "W8-api", "W9-api", "W9-git", "W11-api", "W11-git"},
			stays:        []string{"I13-api", "S9-api"},
			clusterAdmin: true,
		},
		"wide role": {
			reason:  "a fleet with one flag less, and a role of its own that is too wide",
			change:  widen,
			through: []string{"A2-api", "A5-api", "I6-api", "I8-api", "I18-api", "N1-api", "N2-api", "S1-api", "S1-api-HelmRelease", "S3-api", "S4-api"},
			// The role still has kinds that the example's quotas do not count.
			stays: []string{"A2-api"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := copyExample(t)
			tc.change(t, e)
			r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing#main="+e.billing))
			expectNothing(t, tc.reason, failed)
			before, report := verify(r)
			want := slices.Sorted(slices.Values(append(slices.Clone(tc.through), plain...)))
			if diff := cmp.Diff(want, before); diff != "" {
				t.Errorf("what got through %s (-want +got):\n%s", tc.reason, diff)
			}
			for _, tenant := range report.Tenants {
				if got := tenant.HasClusterAdmin(); got != tc.clusterAdmin {
					t.Errorf("%s: tenant %s has cluster-admin: %t", tc.reason, tenant.Name, got)
				}
			}
			r.patch(e, &report)
			r.patched()
			// Objects that were reconciled while a binding was replaced have failed. Request a
			// reconcile now, before their next interval.
			for ref := range r.settle() {
				r.ask(ref)
			}
			testwait.For(t, tc.reason+", patched, is ready", patience, func() (bool, string) {
				failed := r.settle()
				return len(failed) == 0, fmt.Sprint(failed)
			})
			after, _ := tryAttacks(r, func(a catalog.Attack) bool { return slices.Contains(before, a.Key()) })
			left := slices.Sorted(slices.Values(append(slices.Clone(tc.stays), plain...)))
			if diff := cmp.Diff(left, after); diff != "" {
				t.Errorf("what got through %s with the patch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// patch applies the patch of a report, like a user.
func (r run) patch(e example, report *catalog.Report) {
	r.t.Helper()
	patch, err := autofix.Annotate(report, r.Fleet)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, result := range report.Results {
		if result.Finding.Outcome != catalog.GotThrough {
			continue
		}
		fix := result.Attack.Fix
		known := len(fix.Flags) > 0 || len(fix.Denied) > 0 || len(fix.Labels) > 0
		if known && result.Patch == "" {
			r.t.Errorf("%s as %s has no patch", result.Attack.Key(), result.Tenant)
		}
		if !known && !fix.Rights && result.Patch != "" {
			r.t.Errorf("%s as %s has a patch, which cannot help:\n%s", result.Attack.Key(), result.Tenant, result.Patch)
		}
	}
	r.t.Logf("the patch:\n%s", patch)
	cmd := exec.CommandContext(r.t.Context(), "git", "apply")
	cmd.Dir, cmd.Stdin = e.platform, strings.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("cannot apply the patch: %v\n%s", err, out)
	}
}

// patched waits until Flux has applied the patch.
func (r run) patched() {
	r.t.Helper()
	testwait.For(r.t, "Flux to apply the patch", patience, func() (bool, string) {
		for namespace, team := range teams {
			name := strings.TrimSuffix(team, "-preview") + "-reconciler"
			if got := r.field(namespace, "rolebinding/"+name, ".roleRef.name"); got != "acme-tenant" {
				return false, "the role of " + namespace + " is " + got
			}
			if got := r.field("", "namespace/"+namespace, `.metadata.labels.pod-security\.kubernetes\.io/enforce`); got != "restricted" {
				return false, namespace + " has no label"
			}
		}
		if rules := r.field("", "clusterrole/acme-tenant", ".rules"); strings.Contains(rules, `"*"`) {
			return false, "the role is " + rules
		}
		args := r.field("flux-system", "deployment/kustomize-controller", ".spec.template.spec.containers[0].args")
		return strings.Contains(args, "--no-cross-namespace-refs=true") && strings.Contains(args, "--default-service-account=default"), "the flags are " + args
	})
	r.kubectl("", "-n", "flux-system", "rollout", "status", "deployment", atMost)
	// Objects that were reconciled while a binding was replaced have failed, and would be retried
	// only in a minute.
	for object, namespace := range map[string]string{"dev-team": "apps", "preview": "apps", "billing": "billing"} {
		r.kubectl("", "-n", namespace, "annotate", "--overwrite", "kustomization/"+object, "reconcile.fluxcd.io/requestedAt=patched")
		r.until("Kustomization/"+namespace+"/"+object, "to be ready with the narrower role", func(row flux.Row) bool { return row.State == flux.Ready })
	}
	r.kubectl("", "wait", "--for=delete", "namespace/tenure-canary", atMost)
}

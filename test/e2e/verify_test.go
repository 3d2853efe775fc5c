package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/attack"
	"github.com/tenure-dev/tenure/internal/flux"
)

// plain are the attacks that get through on plain Flux with its official
// lockdown, because nothing of Flux or Kubernetes stops them.
var plain = []string{
	"A1-api", // no lower bound on spec.interval
	"A3-api", // no upper bound on spec.timeout
	"N3-api", // no policy on the types of Receivers
	"N4-api", // no policy on the addresses of Providers
}

// verify attacks a running fleet and returns which attacks got through, and that
// every other one was stopped.
func verify(r run) (through []string, report attack.Report) {
	r.t.Helper()
	report, err := attack.Run(r.t.Context(), attack.Options{
		Config: r.REST, Git: r.Git, Network: r.Network, Platform: r.Fleet.Sync.Namespace,
		Root: flux.Ref{Kind: flux.GitRepository, Namespace: r.Fleet.Sync.Namespace, Name: r.Fleet.Sync.Source},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, result := range report.Results {
		id := result.Attack.ID + "-" + string(result.Attack.Via)
		switch result.Finding.Outcome {
		case attack.GotThrough:
			if !slices.Contains(through, id) {
				through = append(through, id)
			}
		case attack.NotProven:
			r.t.Errorf("%s as %s is not proven: %s", id, result.Tenant, result.Finding.Reason)
		case attack.Stopped:
			if result.Finding.Control == "" || result.Finding.Message == "" {
				r.t.Errorf("%s as %s was stopped, but by what and with which words is not said", id, result.Tenant)
			}
		}
	}
	slices.Sort(through)
	return through, report
}

// Each set of controls is taken away from the example fleet, and just the
// attacks that they stop get through. Controls whose attacks have nothing to do
// with each other are taken away together, since a cluster each costs time.
func TestVerifyExample(t *testing.T) {
	t.Parallel()
	const system = "clusters/staging/flux-system"
	for name, tc := range map[string]struct {
		reason  string
		change  func(*testing.T, example)
		through []string
	}{
		"locked down": {
			reason:  "with the official lockdown and the example's policies and role",
			change:  func(*testing.T, example) {},
			through: plain,
		},
		"no flags and no policies": {
			reason: "without --no-cross-namespace-refs and --default-service-account, and without the policies on sources and accounts",
			change: func(t *testing.T, e example) {
				edit(t, "--no-cross-namespace-refs=true", "--no-cross-namespace-refs=false", e.platform, system, "kustomization.yaml")
				edit(t, "--default-service-account=default", "--default-service-account=", e.platform, system, "kustomization.yaml")
				write(t, "resources: [tenant-role.yaml]\n", e.platform, "infrastructure", "policies", "kustomization.yaml")
			},
			through: append([]string{"I1-api", "N1-api", "N2-api", "S1-api", "S9-api"}, plain...),
		},
		"cluster-admin in every namespace": {
			reason: "with cluster-admin bound in the tenants' namespaces, and without Pod Security there",
			change: func(t *testing.T, e example) {
				for _, team := range []string{"dev-team", "dev-team-preview", "billing"} {
					edit(t, "name: acme-tenant", "name: cluster-admin", e.platform, "tenants", "base", team, "rbac.yaml")
					edit(t, "    pod-security.kubernetes.io/enforce: restricted\n", "", e.platform, "tenants", "base", team, "namespace.yaml")
				}
				edit(t, "    pod-security.kubernetes.io/enforce: restricted\n", "", e.bootstrap, "billing.yaml")
			},
			through: append([]string{"I6-api", "I8-api", "S3-api", "S4-api", "W3-api"}, plain...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := copyExample(t)
			tc.change(t, e)
			r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing#main="+e.billing))
			expectNothing(t, tc.reason, failed)
			before := r.kubectl("", "get", "kustomizations,gitrepositories,configmaps,namespaces,roles,pods", "-A", "--no-headers", "-o", "name")
			through, report := verify(r)
			want := slices.Clone(tc.through)
			slices.Sort(want)
			if diff := cmp.Diff(want, through); diff != "" {
				t.Errorf("%s: what got through (-want +got):\n%s", tc.reason, diff)
			}
			if got := len(report.Tenants); got != 2 {
				t.Errorf("%s: %d tenants, want 2", tc.reason, got)
			}
			for _, result := range report.Results {
				named := strings.Contains(result.Finding.Evidence, "reconciler gives ServiceAccount")
				if got := result.Attack.ID == "I8" && result.Finding.Outcome == attack.GotThrough; got != named {
					t.Errorf("%s: %s as %s does not name the binding: %s", tc.reason, result.Attack.Key(), result.Tenant, result.Finding.Evidence)
				}
			}
			for _, tenant := range report.Tenants {
				if got, want := tenant.HasClusterAdmin(), name == "cluster-admin in every namespace"; got != want {
					t.Errorf("%s: cluster-admin of tenant %s: %t, want %t", tc.reason, tenant.Name, got, want)
				}
			}
			r.kubectl("", "wait", "--for=delete", "namespace/tenure-canary", "--timeout=60s")
			after := r.kubectl("", "get", "kustomizations,gitrepositories,configmaps,namespaces,roles,pods", "-A", "--no-headers", "-o", "name")
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("%s: the attacks changed the cluster (-before +after):\n%s", tc.reason, diff)
			}
		})
	}
}

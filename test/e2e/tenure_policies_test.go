package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/testcluster"
)

// tenureProfile allows what the tenants of the example use.
const tenureProfile = `apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  breakGlass: [firefighters]
  tenants:
    sources:
      git: ["https://git.example.com/acme/*"]
      helm: ["https://charts.example.com"]
`

// tenureFleet is a copy of the example whose own policies and role give way to
// Tenure's.
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
		"kustomization.yaml": "resources: [crds.yaml, policies.yaml, roles.yaml, profile.yaml]\n",
		"crds.yaml":          string(config.CRDs()),
		"policies.yaml":      string(config.Policies()),
		"roles.yaml":         string(roles),
		"profile.yaml":       tenureProfile,
	})
	for _, tenant := range []string{"dev-team", "dev-team-preview", "billing"} {
		edit(t, "name: acme-tenant", "name: tenure-tenant", e.platform, "tenants", "base", tenant, "rbac.yaml")
	}
	return e
}

// With Tenure's policies and role every attack is stopped, those included that
// nothing of Flux or Kubernetes stops.
func TestVerifyTenurePolicies(t *testing.T) {
	t.Parallel()
	e := tenureFleet(t)
	r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing#main="+e.billing))
	expectNothing(t, "the example works under Tenure's rules as it is", failed)
	through, report := verify(r)
	if diff := cmp.Diff([]string(nil), through); diff != "" {
		t.Errorf("what got through (-want +got):\n%s", diff)
	}
	for _, result := range report.Results {
		if len(result.Finding.Missing) > 0 {
			t.Logf("%s as %s: no %q", result.Attack.Key(), result.Tenant, result.Finding.Missing)
		}
		t.Logf("%s: %s by %s: %s %s", result.Attack.Key(), result.Finding.Outcome, result.Finding.Control, result.Finding.Message, result.Finding.Evidence)
	}
}

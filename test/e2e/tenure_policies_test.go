package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-dev/tenure/config"
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
// one kind have the same rights. Another Tenant has owners and no namespace yet.
const ownedTeam = `apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: dev-team}
spec:
  owners: [{kind: User, name: alice}, {kind: Group, name: developers}, {kind: ServiceAccount, name: robot, namespace: apps}]
  namespaces: {quota: 5, podSecurity: restricted}
---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: newcomer}
spec: {owners: [{kind: Group, name: newcomers}], namespaces: {quota: 2}}
`

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
	for _, tenant := range []string{"dev-team", "dev-team-preview", "billing"} {
		edit(t, "name: acme-tenant", "name: tenure-tenant", e.platform, "tenants", "base", tenant, "rbac.yaml")
	}
	const label = "toolkit.fluxcd.io/tenant: dev-team\n"
	for _, tenant := range []string{"dev-team", "dev-team-preview"} {
		edit(t, label, label+"    tenure.dev/tenant: dev-team\n", e.platform, "tenants", "base", tenant, "namespace.yaml")
	}
	return e
}

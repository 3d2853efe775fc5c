package get

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/tenants"
)

func TestTenantRows(t *testing.T) {
	t.Parallel()
	got := tenantRows([]tenants.Tenant{{
		Name: "dev-team", Namespaces: []string{"apps", "apps-preview"},
		Accounts: []tenants.Account{{Namespace: "apps", Name: "dev-team"}}, Roles: []string{"ClusterRole/edit"},
		Repositories: []tenants.Repository{{URL: "https://git.example.com/acme/dev-team", Branch: "main"}},
	}})
	want := [][]string{{"dev-team", "apps,apps-preview", "apps/dev-team", "ClusterRole/edit", "https://git.example.com/acme/dev-team#main"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a tenant is one row, lists are joined (-want +got):\n%s", diff)
	}
	if len(want[0]) != len(tenantColumns) {
		t.Errorf("%d cells for %d columns", len(want[0]), len(tenantColumns))
	}
}

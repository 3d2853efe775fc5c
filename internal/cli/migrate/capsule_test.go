package migrate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/ui"
	"sigs.k8s.io/yaml"
)

const files = `
apiVersion: capsule.clastix.io/v1beta1
kind: Tenant
metadata: {name: oil}
spec: {owners: [{kind: User, name: alice}], nodeSelector: {pool: oil}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: gas}
spec: {owners: [{kind: Group, name: "system:serviceaccounts:gas"}]}
---
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: wind}
spec:
  permissions: {matchOwners: [{matchLabels: {team: wind}}]}
  rules: [{enforce: {workloads: {schedulers: [{exact: [slow]}]}}}]
---
{apiVersion: capsule.clastix.io/v1beta2, kind: TenantOwner, metadata: {name: tom, labels: {team: wind}}, spec: {kind: User, name: tom}}
---
{apiVersion: capsule.clastix.io/v1beta2, kind: ResourcePool, metadata: {name: pool}, spec: {quota: {}}}
---
{apiVersion: capsule.clastix.io/v1beta2, kind: TenantResource, metadata: {name: copies, namespace: oil-a}, spec: {resources: []}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}
`

// TestCapsule reads Capsule's objects from a folder, in the two ways to move.
func TestCapsule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"capsule.yaml": files, ".git/other.yaml": "capsule.clastix.io/ is no manifest: {", "notes.txt": "capsule.clastix.io/"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		reason    string
		arguments []string
		out, err  []string // in the two streams
		failure   string
		tenants   []string
	}{
		"replace": {
			reason:    "a Tenant for those that are not refused, and the list beside it",
			arguments: []string{"--fleet", dir},
			failure:   "2 of 3 Tenants are refused",
			err: []string{
				"Tenant/oil|spec.nodeSelector|honoured differently", "Tenant/gas|spec.owners[0]|refused", "Tenant/wind|spec.rules|refused", "Tenant/wind|spec.permissions.matchOwners|honoured differently",
				"ResourcePool/pool|all|refused", "TenantResource/oil-a/copies|all|reported",
			},
			tenants: []string{"oil"},
		},
		"keep": {
			reason:    "the list alone, in which the layer's fields are not refused",
			arguments: []string{"--keep", "-f", dir},
			failure:   "1 of 3 Tenants are refused",
			out:       []string{"Tenant/gas|spec.owners[0]|refused", "Tenant/wind|all|honoured", "ResourcePool/pool|all|refused", "TenantResource/oil-a/copies|all|honoured differently"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			command := NewCommand(ui.IO{Out: &out, Err: &errs})
			command.SetArgs(append([]string{"capsule"}, tc.arguments...))
			err := command.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.failure) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.failure)
			}
			t.Logf("%s\n%s", &out, &errs)
			has(t, tc.out, out.String())
			has(t, tc.err, errs.String())
			var tenants []string
			for _, document := range strings.Split(out.String(), "---\n")[1:] {
				tenant := &v1alpha1.Tenant{}
				if err := yaml.UnmarshalStrict([]byte(document), tenant); err != nil {
					t.Fatal(err)
				}
				tenants = append(tenants, tenant.Name)
			}
			if strings.Join(tenants, " ") != strings.Join(tc.tenants, " ") {
				t.Errorf("%s: got the Tenants %v", tc.reason, tenants)
			}
		})
	}
}

// has looks for the lines of a table, of which the cells are divided by a bar.
func has(t *testing.T, lines []string, table string) {
	t.Helper()
	for _, line := range lines {
		cells := strings.Split(line, "|")
		found := false
		for _, row := range strings.Split(table, "\n") {
			all := true
			for _, cell := range cells {
				all = all && strings.Contains(row, cell)
			}
			found = found || all
		}
		if !found {
			t.Errorf("no line has %s in:\n%s", line, table)
		}
	}
}

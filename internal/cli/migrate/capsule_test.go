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

// TestOddInput reads objects that Tenure does not know or cannot tell apart. Each would otherwise lose a restriction.
func TestOddInput(t *testing.T) {
	t.Parallel()
	const tenant = "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: oil}, spec: {owners: [{kind: User, name: alice}]}}\n"
	profile := func(tenants string) string {
		return "{apiVersion: tenure.dev/v1alpha1, kind: TenancyProfile, metadata: {name: default}, spec: {tenants: " + tenants + "}}"
	}
	for name, tc := range map[string]struct {
		reason   string
		files    map[string]string
		failure  string
		out, err []string
	}{
		"an older version": {
			reason:  "fields of v1alpha1 have other names",
			files:   map[string]string{"a.yaml": "{apiVersion: capsule.clastix.io/v1alpha1, kind: Tenant, metadata: {name: oil}, spec: {owner: {kind: User, name: alice}, externalServiceIPs: {allowed: []}}}"},
			failure: "1 of 1 Tenants are refused",
			err:     []string{"Tenant/oil|spec.owner|refused unless accepted|Tenure does not know the field", "Tenant/oil|spec.externalServiceIPs|refused unless accepted"},
		},
		"an unknown field": {
			reason:  "it may restrict the tenant",
			files:   map[string]string{"a.yaml": strings.Replace(tenant, "spec: {", "spec: {namespaceOptions: {quotas: 3}, ", 1)},
			failure: "1 of 1 Tenants are refused",
			err:     []string{"Tenant/oil|spec.namespaceOptions.quotas|refused unless accepted"},
		},
		"an accepted field": {
			reason: "something else sees to it",
			files:  map[string]string{"a.yaml": strings.Replace(strings.Replace(tenant, "spec: {", "spec: {burst: 3, ", 1), "name: oil", "name: oil, annotations: {tenure.dev/accept-unenforced: spec.burst}", 1)},
			err:    []string{"Tenant/oil|spec.burst|reported"},
			out:    []string{"name: oil"},
		},
		"an unknown field of the status": {
			reason: "the status restricts nobody",
			files:  map[string]string{"a.yaml": strings.Replace(tenant, "spec: {", "status: {burst: 3}, spec: {", 1), "profile.yaml": profile("{}")},
			err:    []string{"Tenant/oil|all|honoured"},
			out:    []string{"name: oil"},
		},
		"a patch of an overlay": {
			reason:  "a Tenant is printed once and whole",
			files:   map[string]string{"base/a.yaml": tenant, "overlay/a.yaml": "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: oil}, spec: {cordoned: true}}"},
			failure: "overlay/a.yaml: Tenant oil differs from the one in ",
		},
		"wildcards of the profile": {
			reason: "as in the layer, a Tenant without allowWildcardHostnames has none of them",
			files:  map[string]string{"a.yaml": tenant, "profile.yaml": profile(`{network: {hosts: {allowed: ["*.apps.example.com", www.example.com]}}}`)},
			out:    []string{`expression: ^.*\.apps\.example\.com$`},
		},
		"no profile": {
			reason: "the profile may allow wildcards",
			files:  map[string]string{"a.yaml": tenant},
			err:    []string{"Tenant/oil|spec.ingressOptions.allowWildcardHostnames|honoured differently|no TenancyProfile was read"},
			out:    []string{"name: oil"},
		},
		"two profiles": {
			reason:  "one may be of another cluster",
			files:   map[string]string{"a.yaml": tenant, "b.yaml": profile(`{network: {hosts: {allowed: ["*"]}}}`), "c.yaml": profile("{}")},
			failure: "c.yaml: two TenancyProfiles have different hosts",
		},
		"no manifest": {
			reason: "a file with the word TenancyProfile, and a chart, need not be read",
			files:  map[string]string{"a.yaml": tenant, "profile.yaml": profile("{}"), "chart/templates/profile.yaml": "kind: TenancyProfile\n{{- with .Values.x }}\n{{- end }}"},
			out:    []string{"name: oil"},
		},
		"two CapsuleConfigurations": {
			reason: "the second would hide the first",
			files: map[string]string{
				"a.yaml": tenant + "---\n{apiVersion: capsule.clastix.io/v1beta2, kind: CapsuleConfiguration, metadata: {name: default}, spec: {forceTenantPrefix: true}}",
				"b.yaml": "{apiVersion: capsule.clastix.io/v1beta2, kind: CapsuleConfiguration, metadata: {name: default}, spec: {forceTenantPrefix: false}}",
			},
			failure: "b.yaml: CapsuleConfiguration default differs from the one in ",
		},
		"the same Tenant twice": {reason: "both files say the same", files: map[string]string{"a.yaml": tenant, "b.json": tenant}, out: []string{"name: oil"}},
		"lists": {
			reason: "items of a list of the API server have no kind",
			files: map[string]string{
				"a.yaml": "apiVersion: capsule.clastix.io/v1beta2\nkind: TenantList\nitems: [{metadata: {name: gas}, spec: {owners: [{kind: User, name: bob}]}}]",
				"b.yaml": "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: [" + tenant + "]}]",
			},
			out: []string{"name: gas", "name: oil"},
		},
		"a template": {
			reason:  "its Tenants are not known",
			files:   map[string]string{"a.yaml": tenant, "chart/templates/tenant.yaml": "apiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata:\n  name: {{ .Values.name }}\n  {{- with .Values.x }}\n  {{- end }}"},
			failure: "1 files are templates",
			err:     []string{"tenant.yaml|all|refused|it is a template"},
			out:     []string{"name: oil"},
		},
		"what the layer enforces": {
			reason:  "the printed Tenants need no layer",
			files:   map[string]string{"a.yaml": tenant + "---\n{apiVersion: capsule.clastix.io/v1beta2, kind: CapsuleConfiguration, metadata: {name: default}, spec: {ignoreUserWithGroups: [ops], nodeMetadata: {forbiddenLabels: {denied: [pool]}, forbiddenAnnotations: {denied: []}}, burst: 3}}"},
			failure: "1 of 1 Tenants are refused",
			err:     []string{"Tenant/oil|spec.ignoreUserWithGroups|refused|use --keep", "Tenant/oil|spec.nodeMetadata|refused|use --keep", "CapsuleConfiguration/default|spec.burst|refused"},
		},
		"another CapsuleConfiguration": {
			reason: "it has no effect",
			files:  map[string]string{"a.yaml": tenant + "---\n{apiVersion: capsule.clastix.io/v1beta2, kind: CapsuleConfiguration, metadata: {name: other}, spec: {forceTenantPrefix: true}}"},
			err:    []string{"CapsuleConfiguration/other|all|refused|only the CapsuleConfiguration named default counts"},
			out:    []string{"name: oil"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, content := range tc.files {
				file = filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, errs bytes.Buffer
			command := NewCommand(ui.IO{Out: &out, Err: &errs})
			command.SetArgs([]string{"capsule", "-f", dir})
			if err := command.ExecuteContext(t.Context()); tc.failure == "" && err != nil || tc.failure != "" && (err == nil || !strings.Contains(err.Error(), tc.failure)) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.failure)
			}
			has(t, tc.out, out.String())
			has(t, tc.err, errs.String())
			if got, want := strings.Count(out.String(), "kind: Tenant\n"), len(tc.out); got != want {
				t.Errorf("%s: got %d Tenants, want %d:\n%s", tc.reason, got, want, &out)
			}
		})
	}
}

package replication

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// made runs a template for the namespace alpha-dev.
func made(t *testing.T, text, missingKey string, context map[string]any) (map[string]any, string) {
	t.Helper()
	parsed, err := ParseTemplate("generators[0]", text, missingKey)
	if err != nil {
		return nil, err.Error()
	}
	objects, refusals := Plan(Input{Tenant: "alpha", Namespaces: namespaces[1:], Scope: scopes, Entries: []Entry{{
		Name: "resources[0]", Capsule: true, Templates: []*Template{parsed}, Context: map[string]map[string]any{"alpha-dev": context},
	}}})
	if len(refusals) > 0 || len(objects) != 1 {
		return nil, strings.TrimSpace(strings.Join(append(named(objects), refusals[0].String()), "\n"))
	}
	data, _ := objects[0].Object.Object["data"].(map[string]any)
	return data, ""
}

const generated = "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: kube-system\ndata:\n"

// TestTemplates checks what templates read and make.
func TestTemplates(t *testing.T) {
	t.Parallel()
	secrets := []any{map[string]any{"metadata": map[string]any{"name": "x"}}, map[string]any{"metadata": map[string]any{"name": "z"}}}
	for name, tc := range map[string]struct {
		reason, text, missingKey string
		want                     map[string]any
		problem                  string
	}{
		"names":       {reason: "of the tenant and the namespace", text: generated + "  t: '{{ .tenant.metadata.name }}/{{ $.namespace.metadata.name }}/{{ index .namespace.metadata.labels \"env\" }}'\n", want: map[string]any{"t": "alpha/alpha-dev/dev"}},
		"context":     {reason: "objects that were read", text: generated + "  count: '{{ len .secrets }}'\n{{ range .secrets }}  {{ .metadata.name }}: '{{ .metadata.name | upper | quote }}'\n{{ end }}", want: map[string]any{"count": "2", "x": `"X"`, "z": `"Z"`}},
		"functions":   {reason: "as Helm has them", text: generated + "  a: '{{ default \"b\" .nothing }} {{ \"c\" | b64enc }} {{ trimPrefix \"al\" .tenant.metadata.name }} {{ ternary \"y\" \"n\" (hasPrefix \"a\" .tenant.metadata.name) }}'\n", want: map[string]any{"a": "b Yw== pha y"}},
		"aliases":     {reason: "the names in Capsule's documentation", text: generated + "  a: '{{ toJSON .tenant.metadata }} {{ \"c\" | toUpper | base64Encode }}'\n", want: map[string]any{"a": `{"name":"alpha"} Qw==`}},
		"nothing":     {reason: "zero is the default", text: generated + "  a: '{{ if .nothing }}1{{ else }}0{{ end }}'\n", want: map[string]any{"a": "0"}},
		"missing":     {reason: "error refuses", text: generated + "  a: '{{ .nothing }}'\n", missingKey: "error", problem: `map has no entry for key "nothing"`},
		"option":      {reason: "no such option", text: "a", missingKey: "explode", problem: "none of invalid, zero and error"},
		"syntax":      {reason: "no template", text: "{{ if }}", problem: "it is no template"},
		"no YAML":     {reason: "no object", text: "a: b: c", problem: "no YAML"},
		"no object":   {reason: "text", text: "a: b", problem: "not an object with apiVersion and kind"},
		"cluster":     {reason: "tenants have no cluster-scoped objects", text: "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a}}", problem: "cluster-scoped kind"},
		"permissions": {reason: "what a tenant may do is the platform's", text: "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: a}}", problem: "is not replicated"},
		"environment": {reason: "no function reads the manager's environment", text: "{{ env \"HOME\" }}", problem: `function "env" not defined`},
		"long":        {reason: "the manager's memory", text: strings.Repeat("x", maxTemplate+1), problem: "longer than"},
		"loop":        {reason: "the manager's time", text: "{{ range 1000000000 }}{{ end }}", problem: "more than 20000 steps"},
		"nested":      {reason: "the manager's time", text: "{{ range 1000 }}{{ if true }}{{ range 1000 }}{{ end }}{{ end }}{{ end }}", problem: "more than 20000 steps"},
		"recursion":   {reason: "the manager's time", text: `{{ define "a" }}{{ template "a" }}{{ template "a" }}{{ end }}{{ template "a" }}`, problem: "more than 20000 steps"},
		"doubling":    {reason: "the manager's memory", text: `{{ $x := "0123456789" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}`, problem: "longer than"},
		"replacing":   {reason: "the manager's memory", text: `{{ $x := "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" }}{{ range 100 }}{{ $x = replace "a" $x $x }}{{ end }}`, problem: "longer than"},
		"width":       {reason: "the manager's memory", text: `{{ printf "%1000000000d" 1 }}`, problem: "makes long texts"},
		"star":        {reason: "the manager's memory", text: `{{ printf "%*d" 1000000000 1 }}`, problem: "makes long texts"},
		"output":      {reason: "the manager's memory", text: "{{ range 2000 }}" + strings.Repeat("x", 1000) + "{{ end }}", problem: "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problem := made(t, tc.text, tc.missingKey, map[string]any{"secrets": secrets})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s%s", tc.reason, diff, problem)
			}
			if tc.problem == "" && problem != "" || !strings.Contains(problem, tc.problem) {
				t.Errorf("%s: got %q, want %q", tc.reason, problem, tc.problem)
			}
		})
	}
}

// TestCapsulePlan checks that objects of Capsule's kinds are in the namespace for which they are
// planned, and that items for one object are one object.
func TestCapsulePlan(t *testing.T) {
	t.Parallel()
	parsed, err := ParseTemplate("generators[0]", generated+"  of-{{ .namespace.metadata.name }}: template\n", "")
	if err != nil {
		t.Fatal(err)
	}
	objects, refusals := Plan(Input{Tenant: "alpha", Namespaces: namespaces[1:], Scope: scopes, Entries: []Entry{{
		Name: "resources[0]", Capsule: true, Templates: []*Template{parsed},
		Items: raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"beta"},"data":{"raw":"1"}}`),
	}}})
	if len(refusals) > 0 || len(objects) != 1 {
		t.Fatalf("got %v, refused %v", named(objects), refusals)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "alpha-dev"},
		"data": map[string]any{"raw": "1", "of-alpha-dev": "template"},
	}
	if diff := cmp.Diff(want, objects[0].Object.Object); diff != "" || objects[0].Origin != "raw-0" {
		t.Errorf("origin %s (-want +got):\n%s", objects[0].Origin, diff)
	}
}

// TestCapsuleTenant checks what templates read of the tenant, and the variables of additional metadata.
func TestCapsuleTenant(t *testing.T) {
	t.Parallel()
	parsed, err := ParseTemplate("generators[0]", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {owners: '{{ range $.tenant.status.owners }}{{ .name }}{{ end }}'}}", "")
	if err != nil {
		t.Fatal(err)
	}
	objects, refusals := Plan(Input{
		Tenant: "alpha", Namespaces: namespaces[1:], Scope: scopes,
		TenantObject: map[string]any{"status": map[string]any{"owners": []any{map[string]any{"name": "alice"}}}},
		Entries: []Entry{{
			Name: "resources[0]", Capsule: true, Variables: true, Templates: []*Template{parsed},
			Labels: map[string]string{"of": "{{tenant.name}}"}, Annotations: map[string]string{"in": "{{ namespace }}"},
		}},
	})
	if len(refusals) > 0 || len(objects) != 1 {
		t.Fatalf("%d objects, refused: %v", len(objects), refusals)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"owners": "alice"},
		"metadata": map[string]any{"name": "a", "namespace": "alpha-dev", "labels": map[string]any{"of": "alpha"}, "annotations": map[string]any{"in": "alpha-dev"}},
	}
	if diff := cmp.Diff(want, objects[0].Object.Object); diff != "" {
		t.Errorf("the object (-want +got):\n%s", diff)
	}
}

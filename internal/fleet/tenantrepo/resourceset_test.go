package tenantrepo

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestResourceSetAdvice checks the input that is proposed for a tenant in a fleet whose tenants come
// from ResourceSets.
func TestResourceSetAdvice(t *testing.T) {
	t.Parallel()
	tenant := Tenant{Name: "green", URL: "https://git.example.com/green", Branch: "trunk"}
	const namespace = "  resources: [{apiVersion: v1, kind: Namespace, metadata: {name: << inputs.tenant >>}}]\n"
	for name, tc := range map[string]struct {
		reason, spec string
		want         []string
	}{
		"Inputs": {
			"the first input with the tenant's values", "  inputs: [{tenant: red, repo: \"https://git.example.com/red\", branch: main, size: 3}]\n" + namespace,
			[]string{"the ResourceSet teams in sets.yaml", "tenant: green", "repo: https://git.example.com/green", "branch: trunk", "size: 3"},
		},
		"Providers": {
			"the inputs come from providers", "  inputsFrom: [{name: newer}]\n" + namespace,
			[]string{"add a ResourceSetInputProvider of type Static"},
		},
		"Template": {
			"a template of text", "  inputs: [{team: red}]\n  resourcesTemplate: |\n    kind: Namespace\n",
			[]string{"team: green"},
		},
		"Others": {"a ResourceSet of the platform", "  inputs: [{tenant: red}]\n  resources: [{kind: ConfigMap}]\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := resourceSetAdvice(fstest.MapFS{"sets.yaml": {Data: []byte("kind: ResourceSet\nmetadata: {name: teams}\nspec:\n" + tc.spec)}}, tenant)
			if (got == "") != (len(tc.want) == 0) {
				t.Errorf("%s: got %q", tc.reason, got)
			}
			for _, part := range tc.want {
				if !strings.Contains(got, part) {
					t.Errorf("%s: %q is missing in %q", tc.reason, part, got)
				}
			}
		})
	}
}

package tenantrepo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
)

// TestResourceSet checks the input that is added for a tenant in a fleet whose tenants come from a
// ResourceSet, and the advice where it cannot be added.
func TestResourceSet(t *testing.T) {
	t.Parallel()
	tenant := Tenant{Name: "green", Namespaces: []string{"green"}, ClusterRole: "admin", URL: "https://git.example.com/green", Branch: "trunk", PodSecurity: PodSecurityNone, Interval: time.Minute}
	const head = "apiVersion: fluxcd.controlplane.io/v1\nkind: ResourceSet\nmetadata: {name: teams}\nspec:\n"
	const namespace = "  resources:\n    - {apiVersion: v1, kind: Namespace, metadata: {name: << inputs.tenant >>}}\n"
	const admin = "    - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: << inputs.tenant >>}}\n"
	for name, tc := range map[string]struct {
		reason, file, want string
		// err and notes are parts of the error and of the notes.
		err, notes []string
		// without is no part of the notes.
		without string
	}{
		"Flow": {
			reason: "inputs on one line", file: head + "  inputs: [{tenant: red}]\n" + namespace,
			want: head + "  inputs: [{tenant: red}, {tenant: green}]\n" + namespace, notes: []string{"ResourceSet teams in sets.yaml makes the tenant's objects"},
		},
		"Block": {
			reason: "fields of the repository, and others",
			file:   head + "  inputs:\n    - tenant: red # the first\n      repo: https://git.example.com/red\n      branch: main\n      size: 3\n" + namespace,
			want:   head + "  inputs:\n    - tenant: red # the first\n      repo: https://git.example.com/red\n      branch: main\n      size: 3\n    - branch: trunk\n      repo: https://git.example.com/green\n      size: 3\n      tenant: green\n" + namespace,
			notes:  []string{"size: copied from the first input", "add toolkit.fluxcd.io/tenant: << inputs.tenant >> to the labels of the Namespace"},
		},
		"Template": {
			reason: "a template of text, whose Namespace names another field",
			file:   head + "  inputs: [{id: red}]\n  resourcesTemplate: |\n    ---\n    kind: Namespace\n    metadata:\n      name: << inputs.id >>\n    ---\n    kind: GitRepository\n    spec:\n      url: https://other.example.com/<< inputs.id >>\n",
			want:   head + "  inputs: [{id: red}, {id: green}]\n  resourcesTemplate: |\n    ---\n    kind: Namespace\n    metadata:\n      name: << inputs.id >>\n    ---\n    kind: GitRepository\n    spec:\n      url: https://other.example.com/<< inputs.id >>\n",
			notes:  []string{"fetches the tenant from https://other.example.com/green, and not from https://git.example.com/green"},
		},
		"Labelled": {
			reason: "a template with a tenant's label", file: head + "  inputs: [{tenant: red}]\n" + strings.Replace(namespace, "}}\n", ", labels: {toolkit.fluxcd.io/tenant: << inputs.tenant >>}}}\n", 1),
			want: head + "  inputs: [{tenant: red}, {tenant: green}]\n" + strings.Replace(namespace, "}}\n", ", labels: {toolkit.fluxcd.io/tenant: << inputs.tenant >>}}}\n", 1), without: "Tenure's rules",
		},
		"There":    {reason: "the tenant is there", file: head + "  inputs: [{tenant: green}]\n" + namespace},
		"Platform": {reason: "beside a set whose accounts are cluster-admin", file: head + "  inputs: [{tenant: ingress}]\n" + namespace + admin + "---\n" + head + "  inputs: [{tenant: red}]\n" + namespace, want: head + "  inputs: [{tenant: ingress}]\n" + namespace + admin + "---\n" + head + "  inputs: [{tenant: red}, {tenant: green}]\n" + namespace},
		"Several":  {reason: "two sets of tenants", file: head + "  inputs: [{tenant: a}]\n" + namespace + "---\n" + head + "  inputs: [{tenant: b}]\n" + namespace, err: []string{"several ResourceSets", "ResourceSet teams in sets.yaml, ResourceSet teams in sets.yaml"}},
		"Named":    {reason: "a provider by its name", file: head + "  inputsFrom: [{name: newer}]\n" + namespace, err: []string{"kind: ResourceSetInputProvider, metadata: {name: green, namespace: flux-system}, spec: {type: Static, defaultValues: {tenant: green}}", "and {name: green} in its spec.inputsFrom"}},
		"Selected": {reason: "providers by a label", file: head + "  inputsFrom: [{selector: {matchLabels: {role: team}}}]\n" + namespace, err: []string{"labels: {role: team}}"}},
		"Quoted":   {reason: "a style that only a person can edit", file: head + "  inputs: [{tenant: \"red\"}]\n" + namespace, err: []string{"add to spec.inputs of ResourceSet teams in sets.yaml: - {tenant: green}"}},
		"Others":   {reason: "a ResourceSet of the platform", file: head + "  inputs: [{tenant: red}]\n  resources: [{kind: ConfigMap}]\n", err: []string{"no environment is named"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "sets.yaml"), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := workspace.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			plan, err := Create(s, Options{Tenant: tenant})
			for _, part := range tc.err {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q is missing in %v", tc.reason, part, err)
				}
			}
			if len(tc.err) > 0 {
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if tc.want == "" {
				tc.want = tc.file
			}
			got, err := s.Read("sets.yaml")
			if diff := cmp.Diff(tc.want, string(got)); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
			}
			if notes := strings.Join(plan.Notes, "\n"); tc.without != "" && strings.Contains(notes, tc.without) {
				t.Errorf("%s: %q is in %q", tc.reason, tc.without, notes)
			}
			for _, part := range tc.notes {
				if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, part) {
					t.Errorf("%s: %q is missing in %q", tc.reason, part, notes)
				}
			}
		})
	}
}

// TestTeamFileAdvice checks where the objects of a new team go in a fleet with a file for each team.
func TestTeamFileAdvice(t *testing.T) {
	t.Parallel()
	const sync = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: apps, namespace: red}\n"
	for reason, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a file for each team":             {map[string]string{"teams/red.yaml": sync}, []string{"teams/red.yaml", "copy it to teams/green.yaml", "--export > teams/green.yaml"}},
		"with a kustomization":             {map[string]string{"teams/red.yaml": sync, "teams/kustomization.yaml": "resources: [red.yaml]\n"}, []string{"add it to the resources in teams/kustomization.yaml"}},
		"a folder for each team":           {map[string]string{"teams/blue/team.yaml": sync, "teams/red/team.yaml": sync}, []string{"copy it to teams/green/team.yaml"}},
		"by the target namespace":          {map[string]string{"teams.yaml": strings.Replace(sync, "namespace: red}", "namespace: flux-system}\nspec: {targetNamespace: red}", 1)}, []string{"green.yaml"}},
		"the root is in another namespace": {map[string]string{"clusters/prod/config.yaml": sync + "spec: {path: ./clusters/prod}\n"}, nil},
		"the platform's own repository":    {map[string]string{"apps/red/ks.yaml": sync + "spec: {sourceRef: {kind: GitRepository, name: flux-system, namespace: flux-system}}\n"}, nil},
		"the same with an account":         {map[string]string{"teams/red.yaml": sync + "spec: {serviceAccountName: red, sourceRef: {kind: GitRepository, name: flux-system, namespace: flux-system}}\n"}, []string{"teams/green.yaml"}},
		"in a base folder":                 {map[string]string{"teams/base/red/sync.yaml": sync, "teams/staging/kustomization.yaml": "resources: [../base/red]\n"}, nil},
		"the platform alone":               {map[string]string{"clusters/prod/infra.yaml": strings.ReplaceAll(sync, "red", "flux-system")}, nil},
	} {
		files := fstest.MapFS{}
		for name, content := range tc.files {
			files[name] = &fstest.MapFile{Data: []byte(content)}
		}
		got := teamFileAdvice(files, Tenant{Name: "green"})
		if (got == "") != (len(tc.want) == 0) {
			t.Errorf("%s: got %q", reason, got)
		}
		for _, part := range tc.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q is missing in %q", reason, part, got)
			}
		}
	}
	files := fstest.MapFS{"teams/red.yaml": &fstest.MapFile{Data: []byte(sync)}}
	if got, want := teamFileAdvice(files, Tenant{Name: "green", Object: true}), "write a Tenant into teams/green.yaml, such as {apiVersion: "; !strings.Contains(got, want) {
		t.Errorf("with the manager: %q is missing in %q", want, got)
	}
}

// TestLayoutAdvice checks the advice for a fleet whose environments were not found.
func TestLayoutAdvice(t *testing.T) {
	t.Parallel()
	const sync = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: apps, namespace: red}\n"
	for reason, tc := range map[string]struct{ file, want string }{
		"the folder of the tenants has another name": {"teams/base/red/sync.yaml", "no Flux Kustomization with the name or the folder tenants applies an environment's tenants, and the teams' objects are in teams/base: add --tenants teams"},
		"the same, deeper in the fleet":              {"deploy/teams/base/red/sync.yaml", "--tenants deploy/teams"},
		"the error of the layout is better":          {"tenants/base/red/sync.yaml", ""},
		"a file for each team":                       {"teams/red.yaml", "copy it to teams/green.yaml"},
		"no team":                                    {"README.md", ""},
	} {
		got := layoutAdvice(fstest.MapFS{tc.file: &fstest.MapFile{Data: []byte(sync)}}, Tenant{Name: "green"})
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", reason, got, tc.want)
		}
	}
}

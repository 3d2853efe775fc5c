package discovery

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// manifest returns the object of a manifest.
func manifest(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestSubjectsOf(t *testing.T) {
	t.Parallel()
	rule := manifest(t, `
exclude: {any: [{subjects: [{kind: ServiceAccount, namespace: team, name: robot}, {kind: User, name: "jane*"}]}]}
preconditions: {all: [{key: "{{ request.userInfo.username }}", operator: AnyNotIn, value: ["a", "b"]}, {key: "{{ request.object.spec.serviceAccountName }}", operator: Equals, value: c}]}
`)
	got := slices.Sorted(slices.Values(subjectsOf(rule.Object)))
	if diff := cmp.Diff([]string{"a", "b", "jane", "team:robot"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each repository has the account as which Flux applies it: a tenant may have several with different rights.
func TestRepositoryAccounts(t *testing.T) {
	t.Parallel()
	sync := func(name string, spec map[string]any) client.Object {
		spec["sourceRef"] = map[string]any{"kind": "GitRepository", "name": "apps"}
		return fluxObject(flux.Kustomization, "team", name, spec)
	}
	found := discover(t, namespace("team", map[string]string{Label: "team"}), account("team", "team", map[string]string{Label: "team"}),
		fluxObject(flux.GitRepository, "team", "apps", map[string]any{"url": "https://git.example.com/team/apps", "ref": map[string]any{"branch": "main"}}),
		sync("apps", map[string]any{"serviceAccountName": "team"}), sync("bare", map[string]any{}),
		sync("elsewhere", map[string]any{"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "x"}}}))
	got := map[string][2]any{}
	for _, r := range found[0].Repositories {
		got[r.Kustomization.Name] = [2]any{r.Account.Name, r.Remote}
	}
	if diff := cmp.Diff(map[string][2]any{"apps": {"team", false}, "bare": {"", false}, "elsewhere": {"", true}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

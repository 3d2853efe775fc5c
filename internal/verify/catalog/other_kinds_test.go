package catalog

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/admission"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestOtherKinds checks which custom kinds the report names, and for which tenants.
func TestOtherKinds(t *testing.T) {
	t.Parallel()
	crd := func(group, plural, scope string) client.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + group},
			"spec": map[string]any{"group": group, "scope": scope, "names": map[string]any{"plural": plural}},
		}}
	}
	rule := func(group, resource, verb string) []authorizationv1.ResourceRule {
		return []authorizationv1.ResourceRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}}
	}
	crds := []client.Object{
		crd("secrets.example.com", "copies", "Namespaced"), crd("secrets.example.com", "pushes", "Namespaced"), crd("secrets.example.com", "stores", "Cluster"),
		crd("certs.example.com", "certificates", "Namespaced"), crd("kustomize.toolkit.fluxcd.io", "kustomizations", "Namespaced"),
	}
	team := []string{"like-team", "team"}
	for name, tc := range map[string]struct {
		rules         []authorizationv1.ResourceRule
		owner, holder []authorizationv1.ResourceRule
		want          []OtherKinds
	}{
		"no rights":            {},
		"reads":                {rules: rule("*", "*", "get")},
		"creates one kind":     {rules: rule("secrets.example.com", "copies", "create"), want: []OtherKinds{{"secrets.example.com", []string{"copies"}, team}}},
		"changes one kind":     {rules: rule("secrets.example.com", "copies", "patch"), want: []OtherKinds{{"secrets.example.com", []string{"copies"}, team}}},
		"writes the status":    {rules: rule("secrets.example.com", "copies/status", "update")},
		"as an owner":          {owner: rule("certs.example.com", "*", "*"), want: []OtherKinds{{"certs.example.com", []string{"certificates"}, team}}},
		"as a further account": {holder: rule("certs.example.com", "*", "*"), want: []OtherKinds{{"certs.example.com", []string{"certificates"}, team}}},
		"kinds of Flux":        {rules: rule("kustomize.toolkit.fluxcd.io", "*", "*")},
		"every kind": {rules: rule("*", "*", "*"), want: []OtherKinds{
			{"certs.example.com", []string{"certificates"}, team}, {"secrets.example.com", []string{"copies", "pushes"}, team},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := withRules("team", tc.rules, crds...)
			e.Tenant.Name, e.owners, e.holders = "team", []*Scenario{withRules("team", tc.owner)}, []*Scenario{withRules("team", tc.holder)}
			got, err := otherKinds(t.Context(), e.Admin, []*Scenario{e}, map[string]string{"like-team": "team", "other": "another"})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := otherKinds(t.Context(), newFakeEnv(interceptor.Funcs{}, crds...).Admin, []*Scenario{newFakeEnv(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return forbidden("no")
	}})}, nil); err == nil {
		t.Error("rights that cannot be read count as none")
	}
}

// TestJudgedGroups checks that each group of a custom kind that a rule covers is one that attacks write.
func TestJudgedGroups(t *testing.T) {
	t.Parallel()
	for _, request := range admission.Requests() {
		resource, _, _ := strings.Cut(request.Resource, "/")
		_, group, custom := strings.Cut(resource, ".")
		if !custom || strings.HasSuffix(group, ".k8s.io") && group != "gateway.networking.k8s.io" || !strings.Contains(group, ".") {
			continue
		}
		if !judged(group) {
			t.Errorf("rule %s covers %s, and the report calls its group one that no attack tries", request.Rule, resource)
		}
	}
}

package catalog

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addResourceSets(register func(...Attack)) {
	const key = "I26-api"
	canary := func(e *Scenario) *unstructured.Unstructured { return configMap(e.Victim.Namespace, name("i26")) }
	register(Attack{
		ID: "I26", Via: API,
		Title:      "has flux-operator apply with the operator's rights, by a ResourceSet that names no service account",
		Controls:   []string{"flag --default-service-account of flux-operator", "policy that demands spec.serviceAccountName of ResourceSets", "no such kinds for tenants"},
		References: []string{"flux-operator: role-based access control of ResourceSets"},
		Fix: Fix{
			Advice: "start flux-operator with --default-service-account (multitenancy.enabled in its chart) and leave that account without rights, or demand spec.serviceAccountName of tenants' ResourceSets with a ValidatingAdmissionPolicy",
		},
		Layers: []Layer{
			admissionLayer("policy that demands spec.serviceAccountName of ResourceSets", func(e *Scenario) *unstructured.Unstructured {
				return e.resourceSet("i26", configMap(e.Namespace, name("i26")), withoutAccount)
			}),
		},
		Deep: true,
		Run: func(ctx context.Context, e *Scenario) Finding {
			own := ownConfigMap("i26")(e)
			if err := e.tryCreate(ctx, e.resourceSet("i26", own, nil)); meta.IsNoMatchError(err) {
				return e.withPositiveControl(ctx, judge(err, ""))
			}
			by := func(id, folder string, change func(map[string]any)) *unstructured.Unstructured {
				made := canary(e)
				if strings.HasSuffix(folder, "/own") {
					made = own
				}
				return e.resourceSet(id, made, change)
			}
			return e.delivered(ctx, by, key, canary(e), own, withoutAccount)
		},
	})
}

// resourceSet returns a ResourceSet of the tenant that creates one object, as the account of
// the tenant's syncs.
func (e *Scenario) resourceSet(id string, made *unstructured.Unstructured, change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{"serviceAccountName": e.Account.Name, "resources": []any{made.Object}}
	if change != nil {
		change(spec)
	}
	return object(operatorAPI, "ResourceSet", e.Namespace, name(strings.ToLower(id)), map[string]any{"spec": spec})
}

package catalog

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addResourceSets(register func(...Attack)) {
	const demands = "policy that demands spec.serviceAccountName of ResourceSets"
	const asOperator = "flag --default-service-account of flux-operator"
	attack := Attack{
		ID: "I26", Via: API,
		Kinds:      []string{"ResourceSet"},
		Title:      "has flux-operator apply with the operator's rights, by a ResourceSet that names no service account",
		Controls:   []string{asOperator, demands, "no such kinds for tenants"},
		References: []string{"flux-operator: role-based access control of ResourceSets"},
		Fix: Fix{
			Advice: "start flux-operator with --default-service-account (multitenancy.enabled in its chart) and leave that account without rights, or demand spec.serviceAccountName of tenants' ResourceSets with a ValidatingAdmissionPolicy",
		},
		Layers: []Layer{
			admissionLayer(demands, func(e *Scenario) *unstructured.Unstructured {
				return e.resourceSet("i26", configMap(e.Namespace, name("i26")), withoutAccount)
			}),
		},
		Deep: true,
		Run: func(ctx context.Context, e *Scenario) Finding {
			return e.appliedAsOperator(ctx, "i26", configMap(e.Victim.Namespace, name("i26")))
		},
	}
	register(attack)

	attack.Kind = "copyFrom"
	attack.Title = "has flux-operator copy a Secret of another namespace with the operator's rights, by a ResourceSet that names no service account"
	attack.References = []string{"flux-operator: annotation copyFrom"}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		copied := object("v1", "Secret", e.Namespace, name("i26-copy"), nil)
		copied.SetAnnotations(map[string]string{"fluxcd.controlplane.io/copyFrom": e.Victim.Namespace + "/" + e.Victim.Secret})
		return e.appliedAsOperator(ctx, "i26-copy", copied)
	}
	register(attack)

	register(Attack{
		ID: "I26", Via: API, Kind: "dependsOn",
		Kinds:      []string{"ResourceSet"},
		Title:      "lets a ResourceSet of its own depend on an object of another namespace",
		Controls:   []string{"policy on spec.dependsOn of ResourceSets", "no such kinds for tenants"},
		References: []string{"flux-operator: dependsOn and readyExpr"},
		Fix:        Fix{Advice: "refuse spec.dependsOn of tenants' ResourceSets that names another namespace with a ValidatingAdmissionPolicy, as the rule tenure-resource-sets does"},
		Deep:       true,
		Run:        dependsByResourceSet,
	})
}

// appliedAsOperator makes flux-operator apply a canary with a ResourceSet without an account. The positive
// control is an ordinary ResourceSet.
func (e *Scenario) appliedAsOperator(ctx context.Context, id string, canary *unstructured.Unstructured) Finding {
	own := configMap(e.Namespace, name(id+"-own"))
	if err := e.tryCreate(ctx, e.resourceSet(id, own, nil)); meta.IsNoMatchError(err) {
		return e.withPositiveControl(ctx, judge(err, ""))
	}
	by := func(set, _ string, change func(map[string]any)) *unstructured.Unstructured {
		if set != id {
			return e.resourceSet(set, own, change)
		}
		return e.resourceSet(set, canary, change)
	}
	return e.delivered(ctx, by, id, canary, own, withoutAccount)
}

// dependsByResourceSet applies a ResourceSet that depends on a ConfigMap of the victim, under a condition
// on its content. If the ResourceSet becomes ready, flux-operator has read the ConfigMap, and the condition
// was true.
func dependsByResourceSet(ctx context.Context, e *Scenario) Finding {
	const id = "i26-depends"
	made := configMap(e.Namespace, name(id))
	on := func(namespace, dependency string) func(map[string]any) {
		return func(spec map[string]any) {
			spec["dependsOn"] = []any{map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "name": dependency, "namespace": namespace,
				"ready": true, "readyExpr": "data.canary == 'sings'",
			}}
		}
	}
	if err := e.tryCreate(ctx, e.resourceSet(id, made, nil)); meta.IsNoMatchError(err) {
		return e.withPositiveControl(ctx, judge(err, ""))
	}
	said, err := e.apply(ctx, e.resourceSet(id, made, on(e.Victim.Namespace, e.Victim.ConfigMap)), func() {})
	control, refused := controlOf(said.message)
	var f Finding
	switch {
	case err != nil:
		f = judge(err, "")
	case said.ready == metav1.ConditionTrue:
		return gotThrough(fmt.Sprintf("flux-operator evaluated a condition on ConfigMap %s/%s for it", e.Victim.Namespace, e.Victim.ConfigMap))
	case refused:
		f = stopped(control, firstLine(said.message))
	default:
		return notProven("the answer is neither a success nor a known refusal: " + firstLine(said.message))
	}
	own := object("v1", "ConfigMap", e.Namespace, name(id+"-own"), map[string]any{"data": map[string]any{"canary": "sings"}})
	if err := e.Admin.Create(ctx, own); err != nil {
		return notProven("cannot make an object to depend on: " + firstLine(err.Error()))
	}
	defer e.remove(own)
	return e.positiveControl(ctx, f, e.resourceSet(id+"-own", made, on(own.GetNamespace(), own.GetName())), func(said readiness) bool { return said.ready == metav1.ConditionTrue })
}

// resourceSet returns a ResourceSet of the tenant that creates one object, as the account of
// the tenant's syncs.
func (e *Scenario) resourceSet(id string, made *unstructured.Unstructured, change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{"serviceAccountName": e.Account.Name, "resources": []any{made.Object}}
	if change != nil {
		change(spec)
	}
	return object(operatorAPI, "ResourceSet", e.Namespace, name(id), map[string]any{"spec": spec})
}

package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addForeignMetrics(register func(...Attack)) {
	canary := func(namespace func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("flagger.app/v1beta1", "Canary", e.Namespace, name("s12"), map[string]any{"spec": map[string]any{
				"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name("s12")},
				"service":   map[string]any{"port": int64(80)},
				"analysis": map[string]any{
					"interval": "60m", "threshold": int64(1), "iterations": int64(1),
					"metrics": []any{map[string]any{
						"name": "canary", "interval": "60m", "thresholdRange": map[string]any{"max": int64(1)},
						"templateRef": map[string]any{"name": "canary", "namespace": namespace(e)},
					}},
				},
			}})
		}
	}
	register(Attack{
		ID: "S12", Via: API,
		Kinds:      []string{"Canary"},
		Title:      "uses the metrics and alerts of another namespace in its Canary of Flagger",
		Controls:   []string{"flag -no-cross-namespace-refs of flagger", "policy on the references of Canaries"},
		References: []string{"Flagger: cross-namespace references"},
		Fix:        Fix{Advice: "start flagger with -no-cross-namespace-refs=true, and refuse templateRef.namespace and providerRef.namespace in tenants' Canaries with a ValidatingAdmissionPolicy"},
		Run: onFlagger(
			canary(func(e *Scenario) string { return e.Victim.Namespace }),
			canary(func(e *Scenario) string { return e.Namespace })),
	})
}

package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addForeignArtifactSource(register func(...Attack)) {
	generator := func(namespace func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator", e.Namespace, name("s2"), map[string]any{"spec": map[string]any{
				"sources":   []any{map[string]any{"alias": "base", "kind": "GitRepository", "name": e.Root.Name, "namespace": namespace(e)}},
				"artifacts": []any{map[string]any{"name": name("s2"), "copy": []any{map[string]any{"from": "@base/**", "to": "@artifact/"}}}},
			}})
		}
	}
	register(Attack{
		ID: "S2", Via: API,
		Kinds:      []string{"ArtifactGenerator"},
		Title:      "creates an artifact from a source of another namespace",
		Controls:   []string{"flag --no-cross-namespace-refs of source-watcher", "policy on the sources of ArtifactGenerators"},
		References: []string{"RFC-0012"},
		Fix: Fix{
			Advice: "start source-watcher with --no-cross-namespace-refs=true, and refuse spec.sources[].namespace in tenants' namespaces with a ValidatingAdmissionPolicy",
			Flags:  []Flag{noCrossNamespaceRefs(sourceWatcher)},
		},
		Run: simulated(sourceWatcher,
			generator(func(e *Scenario) string { return e.Root.Namespace }),
			generator(func(e *Scenario) string { return e.Namespace })),
	})
}

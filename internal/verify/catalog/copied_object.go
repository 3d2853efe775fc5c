package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addCopiedObject(register func(...Attack)) {
	annotated := func(kind, annotation string, value func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			u := object("v1", kind, e.Namespace, name("w16"), nil)
			u.SetAnnotations(map[string]string{annotation: value(e)})
			return u
		}
	}
	victim := func(e *Scenario) string { return e.Victim.Namespace }
	object := func(e *Scenario) string { return e.Victim.Namespace + "/canary" }
	every := func(*Scenario) string { return "true" }
	pushed := annotated("ConfigMap", "replicator.v1.mittwald.de/replicate-to", victim)
	var all []request
	for _, copied := range []struct {
		what, kind string
		aimed      func(*Scenario) *unstructured.Unstructured
	}{
		{"have a controller copy a ConfigMap into another namespace", "ConfigMap", pushed},
		{"have a controller copy a Secret into all namespaces", "Secret", annotated("Secret", "reflector.v1.k8s.emberstack.com/reflection-auto-enabled", every)},
		{"have a controller copy a ConfigMap into the namespaces that it selects", "ConfigMap", annotated("ConfigMap", "kubed.appscode.com/sync", func(*Scenario) string { return "" })},
		{"have a controller copy a Secret of another namespace", "Secret", annotated("Secret", "replicator.v1.mittwald.de/replicate-from", object)},
	} {
		plain := annotated(copied.kind, "tenure.dev/attack", func(*Scenario) string { return "none" })
		all = append(all, request{what: copied.what, aimed: creating(copied.aimed, plain), own: creating(plain)})
	}
	alsoByGit(register, "ConfigMap", pushed, Attack{
		ID: "W16", Via: API, Owners: OwnersWithin,
		Kinds:    []string{"ConfigMap", "Secret"},
		Title:    "has a controller copy an object from or into another namespace, with annotations",
		Controls: []string{"policy on the annotations of objects that controllers copy"},
		Fix:      Fix{Advice: "refuse the annotations by which kubernetes-replicator, reflector and config-syncer copy objects with a ValidatingAdmissionPolicy, and have these controllers watch only the namespaces of the platform"},
		Run:      requests(all...),
	})
}

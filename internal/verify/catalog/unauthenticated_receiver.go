package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addUnauthenticatedReceiver(register func(...Attack)) {
	receiver := func(kind string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("notification.toolkit.fluxcd.io/v1", "Receiver", e.Namespace, name("n3"), map[string]any{"spec": map[string]any{
				"type": kind, "secretRef": map[string]any{"name": "any"},
				"resources": []any{map[string]any{"kind": "GitRepository", "name": "any"}},
			}})
		}
	}
	own := creating(receiver("generic-hmac"))
	// These are the types for which the sender signs nothing, or Flux does not verify the signature with
	// the token of the Receiver.
	var all []request
	for _, kind := range []string{"generic", "dockerhub", "quay", "acr", "cdevents"} {
		all = append(all, request{what: "make a Receiver of type " + kind + ", whose callers sign nothing", aimed: creating(receiver(kind)), own: own})
	}
	register(Attack{
		ID: "N3", Via: API,
		Kinds:      []string{"Receiver"},
		Title:      "creates a Receiver that does not authenticate its callers",
		Controls:   []string{"policy on the types of Receivers"},
		References: []string{"Flux documentation: Receivers"},
		Fix:        Fix{Advice: "allow Receivers of tenants only with types whose callers authenticate themselves, such as generic-hmac or github, with a ValidatingAdmissionPolicy on spec.type"},
		Run:        requests(all...),
	})
}

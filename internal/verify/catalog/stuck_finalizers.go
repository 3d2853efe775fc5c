package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addStuckFinalizers(register func(...Attack)) {
	finalized := func(e *Scenario) *unstructured.Unstructured {
		u := configMap(e.Namespace, name("a4"))
		u.SetFinalizers([]string{"tenure.example.com/attack"})
		return u
	}
	plain := func(e *Scenario) *unstructured.Unstructured { return configMap(e.Namespace, name("a4")) }
	register(Attack{
		ID: "A4", Via: API, Owners: OwnersWithin,
		Kinds:    []string{"*"},
		Title:    "blocks the deletion of its namespace with its own finalizers",
		Controls: []string{"policy on finalizers"},
		Fix:      Fix{Advice: "allow tenants only the finalizers that a controller removes, with a ValidatingAdmissionPolicy on metadata.finalizers"},
		Run: requests(request{
			what:  "create an object with a finalizer that no controller removes, which blocks the deletion of its namespace",
			aimed: creating(finalized, plain),
			own:   creating(plain),
		}),
	})
}

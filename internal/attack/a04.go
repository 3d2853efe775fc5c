package attack

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func init() {
	finalized := func(e *Env) *unstructured.Unstructured {
		u := configMap(e.Namespace, name("a4"))
		u.SetFinalizers([]string{"tenure.example.com/attack"})
		return u
	}
	register(Attack{
		ID: "A4", Via: API,
		Title:    "keeps its namespace from being removed, with finalizers of its own making",
		Controls: []string{"policy on finalizers", "ordered offboarding"},
		Fix:      Fix{Advice: "allow tenants only the finalizers that the platform knows with a ValidatingAdmissionPolicy on metadata.finalizers, and when a tenant goes, take finalizers out of what is left in its namespaces"},
		Run: requests(request{
			what:  "make an object with a finalizer that nobody serves, which holds up the end of its namespace",
			aimed: creating(finalized),
		}),
	})
}

package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addStuckFinalizers(register func(...Attack)) {
	finalized := func(e *Scenario) *unstructured.Unstructured {
		u := configMap(e.Namespace, name("a4"))
		u.SetFinalizers([]string{"tenure.example.com/attack"})
		return u
	}
	plain := func(e *Scenario) *unstructured.Unstructured { return configMap(e.Namespace, name("a4")) }
	slow := hardenedPod("a4", map[string]any{"terminationGracePeriodSeconds": int64(10 * 365 * 24 * 60 * 60)})
	register(Attack{
		ID: "A4", Via: API, Owners: OwnersWithin,
		Kinds:    []string{"*", "Pod"},
		Title:    "blocks the deletion of its namespace with its own finalizers, or with Pods that take years to end",
		Controls: []string{"policy on finalizers and on the time that Pods have to end"},
		Fix:      Fix{Advice: "allow tenants only the finalizers that a controller removes, with a ValidatingAdmissionPolicy on metadata.finalizers, and limit terminationGracePeriodSeconds of Pods"},
		Run: requests(request{
			what:  "create an object with a finalizer that no controller removes, which blocks the deletion of its namespace",
			aimed: creating(finalized, plain),
			own:   creating(plain),
		}, request{
			what:  "run a Pod that takes ten years to end, and holds up the end of its namespace",
			aimed: creating(slow),
			own:   creating(hardenedPod("a4", nil)),
		}),
	})
}

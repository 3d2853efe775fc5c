package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addMisleadingEvents(register func(...Attack)) {
	// The API server compares the namespaces only in an Event without eventTime.
	about := func(kind, named string, in func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("v1", "Event", e.Namespace, name("n7"), map[string]any{
				"involvedObject": map[string]any{"apiVersion": "v1", "kind": kind, "name": named, "namespace": in(e)},
				"reason":         "TenureAttack", "message": "tenure-canary", "type": "Normal", "action": "Attack",
				"reportingComponent": "tenure.dev/attack", "reportingInstance": "tenure-attack",
				"eventTime": "2026-01-01T00:00:00.000000Z",
			})
		}
	}
	own := func(e *Scenario) string { return e.Namespace }
	plain := creating(about("Pod", name("n7"), own))
	register(Attack{
		ID: "N7", Via: API, Owners: OwnersWithin,
		Kinds:    []string{"Event"},
		Title:    "reports Events about nodes or about objects of others, which readers of all Events believe",
		Controls: []string{"RBAC", "policy on the objects that Events are about"},
		Fix:      Fix{Advice: "give the tenant's role no write verb on events, or refuse Events about nodes and about objects of other namespaces with a ValidatingAdmissionPolicy, as the rule tenure-events does", Rights: true},
		Run: requests(
			request{what: "report an Event about an object of another tenant", aimed: creating(about("Pod", name("n7"), func(e *Scenario) string { return e.Victim.Namespace })), own: plain},
			request{what: "report an Event about a node", aimed: creating(about("Node", name("n7"), own)), own: plain},
		),
	})
}

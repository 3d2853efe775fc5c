package attack

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func init() {
	register(Attack{
		ID: "A1", Via: API,
		Title:    "asks for a reconciliation every second",
		Controls: []string{"policy with a lower bound on spec.interval"},
		Fix:      Fix{Advice: "bound spec.interval of tenants' Flux objects from below with a ValidatingAdmissionPolicy"},
		Run: requests(request{
			what:  "set spec.interval to 1s",
			aimed: creating(withTimes("a1", "1s", "1m")),
			own:   creating(withTimes("a1", "10m", "1m")),
		}),
	})
}

// withTimes is a suspended Kustomization with an interval and a timeout.
func withTimes(id, interval, timeout string) func(*Env) *unstructured.Unstructured {
	return func(e *Env) *unstructured.Unstructured {
		return object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", e.Namespace, name(id), map[string]any{"spec": map[string]any{
			"interval": interval, "timeout": timeout, "path": "./", "prune": true, "wait": true, "suspend": true,
			"serviceAccountName": e.Account.Name,
			"sourceRef":          map[string]any{"kind": "GitRepository", "name": "any"},
		}})
	}
}

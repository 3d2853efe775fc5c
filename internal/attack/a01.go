package attack

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func init() {
	kustomization := func(interval, timeout string) func(*Env) *unstructured.Unstructured {
		return func(e *Env) *unstructured.Unstructured {
			return object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", e.Namespace, name("a1"), map[string]any{"spec": map[string]any{
				"interval": interval, "timeout": timeout, "path": "./", "prune": true, "wait": true, "suspend": true,
				"serviceAccountName": e.Account.Name,
				"sourceRef":          map[string]any{"kind": "GitRepository", "name": "any"},
			}})
		}
	}
	modest := creating(kustomization("10m", "1m"))
	register(
		Attack{
			ID: "A1", Via: API,
			Title:    "asks for a reconciliation every second",
			Controls: []string{"policy with a lower bound on spec.interval"},
			Fix:      "bound spec.interval of tenants' Flux objects from below with a ValidatingAdmissionPolicy",
			Run:      requests(request{what: "set spec.interval to 1s", aimed: creating(kustomization("1s", "1m")), own: modest}),
		},
		Attack{
			ID: "A3", Via: API,
			Title:    "holds a worker of the controller for a day",
			Controls: []string{"policy with an upper bound on spec.timeout"},
			Fix:      "bound spec.timeout of tenants' Flux objects from above with a ValidatingAdmissionPolicy",
			Run:      requests(request{what: "set spec.timeout to 24h with spec.wait", aimed: creating(kustomization("10m", "24h")), own: modest}),
		},
	)
}

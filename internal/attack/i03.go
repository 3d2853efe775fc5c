package attack

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func init() {
	kustomizationIn := func(namespace func(*Env) string) func(*Env) *unstructured.Unstructured {
		return func(e *Env) *unstructured.Unstructured {
			return object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", namespace(e), name("i3"), map[string]any{"spec": map[string]any{
				"interval": "1h", "path": "./", "prune": true, "suspend": true,
				"serviceAccountName": e.Account.Name,
				"sourceRef":          map[string]any{"kind": "GitRepository", "name": "any"},
			}})
		}
	}
	own := creating(kustomizationIn(func(e *Env) string { return e.Namespace }))
	attack := Attack{
		ID:         "I3",
		Title:      "puts a Flux object into the platform's or another tenant's namespace",
		Controls:   []string{"RBAC"},
		References: []string{"flux2-multi-tenancy: roles"},
		Fix:        Fix{Advice: "bind the tenant's account with RoleBindings in its own namespaces only, never with a ClusterRoleBinding", Rights: true},
	}
	attack.Via = API
	attack.Run = requests(
		request{what: "create a Kustomization in the platform's namespace", aimed: creating(kustomizationIn(func(e *Env) string { return e.Platform })), own: own},
		request{what: "create a Kustomization in another tenant's namespace", aimed: creating(kustomizationIn(func(e *Env) string { return e.Victim.Namespace })), own: own},
	)
	register(attack)
	register(delivers(attack, kustomizationIn(func(e *Env) string { return e.Victim.Namespace }), kustomizationIn(func(e *Env) string { return e.Namespace })))
}

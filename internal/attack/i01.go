package attack

import "context"

func init() {
	register(Attack{
		ID: "I1", Via: API,
		Title:      "applies with the rights of the controller, by naming no service account",
		Controls:   []string{"flag --default-service-account", "policy that demands spec.serviceAccountName"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix:        "start kustomize-controller and helm-controller with --default-service-account=default, and leave that account without rights",
		Files: func(e *Env) map[string]string {
			return map[string]string{
				"aimed/canary.yaml": manifest(configMap(e.Victim.Namespace, name("i1"))),
				"own/canary.yaml":   manifest(configMap(e.Namespace, name("i1"))),
			}
		},
		Run: func(ctx context.Context, e *Env) Finding {
			return e.reconciles(ctx, "I1-api", configMap(e.Victim.Namespace, name("i1")), configMap(e.Namespace, name("i1")), func(spec map[string]any) {
				delete(spec, "serviceAccountName")
			})
		},
	})
}

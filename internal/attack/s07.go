package attack

import "context"

func init() {
	register(Attack{
		ID: "S7", Via: API,
		Title:      "builds on a base that is not in an approved source",
		Controls:   []string{"flag --no-remote-bases"},
		References: []string{"flux2-multi-tenancy: enforce tenant isolation"},
		Fix:        "start kustomize-controller with --no-remote-bases=true",
		Files: func(e *Env) map[string]string {
			return map[string]string{
				// An address that is always served here, and that Flux has
				// no source for: the tenant's own repository as a base.
				"aimed/kustomization.yaml": "resources: [\"" + e.Repository.URL + "//" + folder("S7-api") + "/own?ref=" + e.Repository.Branch + "\"]\n",
				"own/kustomization.yaml":   "resources: [canary.yaml]\n",
				"own/canary.yaml":          manifest(configMap(e.Namespace, name("s7"))),
			}
		},
		Run: func(ctx context.Context, e *Env) Finding {
			own := configMap(e.Namespace, name("s7"))
			return e.reconciles(ctx, "S7-api", own, own, nil)
		},
	})
}

package attack

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func init() {
	attack := Attack{
		ID:         "I11",
		Title:      "delivers manifests for another tenant's namespace",
		Controls:   []string{"RBAC of the account that Flux impersonates"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix:        Fix{Advice: "make Flux impersonate the tenant's account (spec.serviceAccountName, --default-service-account), and bind that account in the tenant's namespaces only", Rights: true},
	}
	register(delivers(attack, func(e *Env) *unstructured.Unstructured {
		return configMap(e.Victim.Namespace, name("i11"))
	}, ownConfigMap("i11")))
	attack.Via, attack.Deep = API, true
	attack.Title = "aims a Kustomization at another tenant's namespace (spec.targetNamespace)"
	attack.Files = func(e *Env) map[string]string {
		return map[string]string{
			"aimed/canary.yaml": manifest(configMap("", name("i11-target"))),
			"own/canary.yaml":   manifest(configMap(e.Namespace, name("i11-target"))),
		}
	}
	attack.Run = func(ctx context.Context, e *Env) Finding {
		return e.reconciles(ctx, attack.Key(), configMap(e.Victim.Namespace, name("i11-target")), configMap(e.Namespace, name("i11-target")), func(spec map[string]any) {
			spec["targetNamespace"] = e.Victim.Namespace
		})
	}
	register(attack)
}

package catalog

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addForeignNamespaceManifests(register func(...Attack)) {
	attack := Attack{
		ID:         "I11",
		Title:      "delivers manifests for another tenant's namespace",
		Controls:   []string{"RBAC of the account that Flux impersonates"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix:        Fix{Advice: "make Flux impersonate the tenant's account (spec.serviceAccountName, --default-service-account), and bind that account in the tenant's namespaces only", Rights: true},
	}
	register(deliversManifests(attack, "*", func(e *Scenario) *unstructured.Unstructured {
		return configMap(e.Victim.Namespace, name("i11"))
	}, ownConfigMap("i11")))
	attack.Via, attack.Deep, attack.Kinds = API, true, []string{"Kustomization"}
	attack.Title = "applies a Kustomization to another tenant's namespace (spec.targetNamespace)"
	attack.Files = func(e *Scenario) map[string]string {
		return map[string]string{
			"aimed/canary.yaml": manifest(configMap("", name("i11-target"))),
			"own/canary.yaml":   manifest(configMap(e.Namespace, name("i11-target"))),
		}
	}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		return e.reconciles(ctx, attack.Key(), configMap(e.Victim.Namespace, name("i11-target")), configMap(e.Namespace, name("i11-target")), func(spec map[string]any) {
			spec["targetNamespace"] = e.Victim.Namespace
		})
	}
	register(attack)
	register(releaseElsewhere(attack))
	register(recordsElsewhere(attack))
}

// releaseElsewhere returns the attack with a HelmRelease that targets another namespace. The chart's
// objects name no namespace, so Helm creates them in the target namespace.
func releaseElsewhere(a Attack) Attack {
	a.Kind, a.Kinds = "HelmRelease", []string{"HelmRelease"}
	a.Title = "installs a HelmRelease in another tenant's namespace (spec.targetNamespace)"
	a.Files = func(e *Scenario) map[string]string {
		return charts(configMap("", name("i11-release")), ownConfigMap("i11-release")(e))
	}
	a.Run = func(ctx context.Context, e *Scenario) Finding {
		return e.installsChart(ctx, a.Key(), configMap(e.Victim.Namespace, name("i11-release")), ownConfigMap("i11-release")(e), func(spec map[string]any) {
			spec["targetNamespace"] = e.Victim.Namespace
		})
	}
	return a
}

// recordsElsewhere returns the attack with a HelmRelease that stores its release records in another
// namespace. The canary is the Secret with the first revision.
func recordsElsewhere(a Attack) Attack {
	a.Kind, a.Kinds = "HelmRelease-storage", []string{"HelmRelease"}
	a.Title = "stores the release records of a HelmRelease in another tenant's namespace (spec.storageNamespace)"
	a.Files = func(e *Scenario) map[string]string {
		return charts(configMap(e.Namespace, name("i11-storage")), ownConfigMap("i11-storage")(e))
	}
	a.Run = func(ctx context.Context, e *Scenario) Finding {
		record := object("v1", "Secret", e.Victim.Namespace, "sh.helm.release.v1."+name(a.Key())+".v1", nil)
		f := e.installsChart(ctx, a.Key(), record, ownConfigMap("i11-storage")(e), func(spec map[string]any) {
			spec["storageNamespace"] = e.Victim.Namespace
		})
		e.remove(configMap(e.Namespace, name("i11-storage")))
		return f
	}
	return a
}

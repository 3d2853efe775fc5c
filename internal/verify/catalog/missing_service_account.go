package catalog

import (
	"context"
	"slices"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addMissingServiceAccount(register func(...Attack)) {
	register(Attack{
		ID: "I1", Via: API,
		Kinds:      []string{"Kustomization"},
		Title:      "applies with the rights of the controller, by naming no service account",
		Controls:   []string{"flag --default-service-account", "policy that demands spec.serviceAccountName"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start kustomize-controller with --default-service-account=default, and leave that account without rights",
			Flags:  []Flag{defaultServiceAccount("kustomize-controller")},
		},
		Layers: []Layer{
			flagLayer(defaultServiceAccount("kustomize-controller")),
			admissionLayer("policy that demands spec.serviceAccountName", func(e *Scenario) *unstructured.Unstructured {
				return e.kustomization("i1", missingFolder, withoutAccount)
			}),
		},
		Deep: true,
		Files: func(e *Scenario) map[string]string {
			return map[string]string{
				"aimed/canary.yaml": manifest(configMap(e.Victim.Namespace, name("i1"))),
				"own/canary.yaml":   manifest(configMap(e.Namespace, name("i1"))),
			}
		},
		Run: func(ctx context.Context, e *Scenario) Finding {
			return e.namingNobody(ctx, e.suspended("i1", emptyAccount), func(change func(map[string]any)) Finding {
				return e.reconciles(ctx, "I1-api", configMap(e.Victim.Namespace, name("i1")), configMap(e.Namespace, name("i1")), change)
			})
		},
	})
}

func addMissingServiceAccountByRelease(register func(...Attack)) {
	const key = "I1-api-HelmRelease"
	canary := func(e *Scenario) *unstructured.Unstructured { return configMap(e.Victim.Namespace, name("i1-release")) }
	register(Attack{
		ID: "I1", Via: API, Kind: "HelmRelease",
		Kinds:      []string{"HelmRelease"},
		Title:      "installs a chart with the rights of the controller, by naming no service account",
		Controls:   []string{"flag --default-service-account", "policy that demands spec.serviceAccountName"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start helm-controller with --default-service-account=default, and leave that account without rights",
			Flags:  []Flag{defaultServiceAccount("helm-controller")},
		},
		Layers: []Layer{
			flagLayer(defaultServiceAccount("helm-controller")),
			admissionLayer("policy that demands spec.serviceAccountName", func(e *Scenario) *unstructured.Unstructured {
				return e.suspendedRelease("i1", withoutAccount)
			}),
		},
		Deep:  true,
		Files: func(e *Scenario) map[string]string { return charts(canary(e), ownConfigMap("i1-release")(e)) },
		Run: func(ctx context.Context, e *Scenario) Finding {
			return e.namingNobody(ctx, e.suspendedRelease("i1", emptyAccount), func(change func(map[string]any)) Finding {
				return e.installsChart(ctx, key, canary(e), ownConfigMap("i1-release")(e), change)
			})
		},
	})
}

func addMissingServiceAccountByCommit(register func(...Attack)) {
	canary := func(namespace func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured { return configMap(namespace(e), name("i1-git")) }
	}
	attack := deliversManifests(Attack{
		ID:         "I1",
		Title:      "delivers into another namespace, since the Kustomization for its repository names no service account, or one with rights there",
		Controls:   []string{"RBAC", "flag --default-service-account"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "set spec.serviceAccountName in the Kustomization for the tenant's repository, to an account with rights in the tenant's namespaces only, and start kustomize-controller with --default-service-account=default",
			Flags:  []Flag{defaultServiceAccount("kustomize-controller")},
		},
	}, "Kustomization", canary(func(e *Scenario) string { return e.Victim.Namespace }), canary(func(e *Scenario) string { return e.Namespace }))
	run := attack.Run
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		f := run(ctx, e)
		if f.Outcome != GotThrough {
			return f
		}
		// It could be read a moment ago, for the delivery.
		if d, err := e.delivering(ctx); err == nil {
			f.Fix = d.fixOfSyncs(ctx)
		}
		return f
	}
	register(attack)
}

// fixOfSyncs returns what to change in the Kustomization of a Scenario of [Scenario.delivering], or in those for the
// repositories of all tenants that name no account; "" if there are none.
func (e *Scenario) fixOfSyncs(ctx context.Context) string {
	if account, _ := e.sync["serviceAccountName"].(string); account != "" {
		return "the Kustomization for the tenant's repository names the account " + account + ", which has rights in other namespaces: name an account with rights in the tenant's namespaces only"
	}
	if syncs := e.syncsWithoutAccount(ctx); len(syncs) > 0 {
		return "set spec.serviceAccountName in " + listed(syncs) + "; and start kustomize-controller with " + defaultServiceAccount("kustomize-controller").Flag
	}
	return ""
}

// syncsWithoutAccount returns the Kustomizations for the repositories of all tenants that name no account.
// Each text also names the account that the Kustomization should have.
func (e *Scenario) syncsWithoutAccount(ctx context.Context) []string {
	var syncs []string
	for _, t := range e.tenants {
		for _, r := range t.Deliveries() {
			sync := object(flux.Kustomization.GroupVersionKind().GroupVersion().String(), string(flux.Kustomization), r.Kustomization.Namespace, r.Kustomization.Name, nil)
			if e.Admin.Get(ctx, keyOf(sync), sync) != nil {
				continue
			}
			if named, _, _ := unstructured.NestedString(sync.Object, "spec", "serviceAccountName"); named != "" {
				continue
			}
			// The account default is a guess for a tenant without an account.
			account := "an account of namespace " + sync.GetNamespace() + " with rights in the tenant's namespaces only"
			if i := slices.IndexFunc(t.Accounts, func(a discovery.Account) bool { return a.Namespace == sync.GetNamespace() && a.Name != "default" }); i >= 0 {
				account = t.Accounts[i].Name
			}
			syncs = append(syncs, r.Kustomization.String()+" (to "+account+")")
		}
	}
	return syncs
}

// defaultServiceAccount returns the flag for the account that Flux impersonates if an object names none.
func defaultServiceAccount(controller string) Flag {
	return Flag{Controller: controller, Flag: "--default-service-account=default"}
}

func withoutAccount(spec map[string]any) { delete(spec, "serviceAccountName") }

// emptyAccount is [withoutAccount] for a policy that checks only whether the field exists.
func emptyAccount(spec map[string]any) { spec["serviceAccountName"] = "" }

// namingNobody runs an attack without an account. If a policy refuses this and admits the object with an
// empty name, it runs the attack with the empty name.
func (e *Scenario) namingNobody(ctx context.Context, empty *unstructured.Unstructured, run func(change func(map[string]any)) Finding) Finding {
	f := run(withoutAccount)
	if f.Outcome != Stopped || !isPolicy(f.Control) || e.tryCreate(ctx, empty) != nil {
		return f
	}
	return run(emptyAccount)
}

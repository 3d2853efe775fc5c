package catalog

import (
	"context"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addForeignNamespaceObject(register func(...Attack)) {
	kustomizationIn := func(namespace func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", namespace(e), name("i3"), map[string]any{"spec": map[string]any{
				"interval": "1h", "path": "./", "prune": true, "suspend": true,
				"serviceAccountName": e.Account.Name,
				"sourceRef":          map[string]any{"kind": "GitRepository", "name": "any"},
			}})
		}
	}
	own := creating(kustomizationIn(func(e *Scenario) string { return e.Namespace }))
	releaseIn := func(namespace func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("helm.toolkit.fluxcd.io/v2", "HelmRelease", namespace(e), name("i3"), map[string]any{"spec": map[string]any{
				"interval": "1h", "suspend": true, "serviceAccountName": e.Account.Name,
				"chartRef": map[string]any{"kind": "HelmChart", "name": "any"},
			}})
		}
	}
	platform, victim := func(e *Scenario) string { return e.Platform }, func(e *Scenario) string { return e.Victim.Namespace }
	ownRelease := creating(releaseIn(func(e *Scenario) string { return e.Namespace }))
	attack := Attack{
		ID:         "I3",
		Title:      "creates a Flux object in the platform's or another tenant's namespace",
		Controls:   []string{"RBAC"},
		References: []string{"flux2-multi-tenancy: roles"},
		Fix:        Fix{Advice: "bind the tenant's account with RoleBindings in its own namespaces only, never with a ClusterRoleBinding", Rights: true},
	}
	attack.Via, attack.Owners, attack.Kinds = API, OwnersAnywhere, slices.Concat(everySync, []string{"*", "HelmChart", "ImagePolicy", "ImageRepository", "ImageUpdateAutomation", "Alert", "Provider", "Receiver"})
	attack.Title = "creates a Flux object in the platform's or another tenant's namespace, or changes objects of others"
	attack.Run = requestsElsewhere(
		request{what: "create a Kustomization in the platform's namespace", aimed: creating(kustomizationIn(platform)), own: own},
		request{what: "create a Kustomization in another tenant's namespace", aimed: creating(kustomizationIn(victim)), own: own},
		request{what: "create a HelmRelease in the platform's namespace", aimed: creating(releaseIn(platform)), own: ownRelease},
		request{what: "create a HelmRelease in another tenant's namespace", aimed: creating(releaseIn(victim)), own: ownRelease},
		request{what: "change the platform's own source", aimed: func(ctx context.Context, e *Scenario) error {
			root := object(flux.GitRepository.GroupVersionKind().GroupVersion().String(), "GitRepository", e.Root.Namespace, e.Root.Name, nil)
			return e.As.Patch(ctx, root, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"canary":"sings"}}}`)), client.DryRunAll)
		}},
	)
	register(attack)
	attack.Owners, attack.Title = OwnersNever, "creates a Flux object in the platform's or another tenant's namespace"
	// Flux sends the manifest once, so that it has the fields that a policy may demand.
	delivered := func(namespace func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return withRecommendedFields(kustomizationIn(namespace)(e))
		}
	}
	register(deliversManifests(attack, "Kustomization", delivered(victim), delivered(func(e *Scenario) string { return e.Namespace })))
}

// requestsElsewhere is [requests] with the requests that the tenant's roles allow in namespaces of others.
func requestsElsewhere(all ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		f := requests(all...)(ctx, e)
		if f.Outcome != Stopped {
			return f
		}
		created, err := e.createsElsewhere(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		changed, err := e.changesEverywhere(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		further := slices.Concat(created, changed)
		return thenTry(ctx, e, f, further)
	}
}

// thenTry returns the finding of further requests unless they are stopped, and otherwise the finding of the first ones.
func thenTry(ctx context.Context, e *Scenario, first Finding, further []request) Finding {
	if len(further) == 0 {
		return first
	}
	if last := requests(further...)(ctx, e); last.Outcome != Stopped {
		return last
	}
	return first
}

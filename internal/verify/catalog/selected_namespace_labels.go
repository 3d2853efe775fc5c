package catalog

import (
	"context"
)

func addSelectedNamespaceLabels(register func(...Attack)) {
	register(Attack{
		ID: "I21", Via: API, Kind: "labels", Owners: OwnersAnywhere,
		Kinds:      []string{"Namespace"},
		Title:      "creates a namespace with labels and annotations by which other objects select namespaces",
		Controls:   []string{"RBAC on namespaces", "policy and webhook with a list of the labels that owners choose"},
		References: []string{"Gateway API: cross-namespace routing"},
		Fix:        Fix{Advice: "let tenants create no namespaces, or only with labels and annotations of a list: nobody can list all objects that select namespaces by labels", Rights: true},
		Slow:       true,
		Run:        choosesLabels,
	})
}

// choosesLabels creates namespaces with labels and annotations that no list lets owners choose.
func choosesLabels(ctx context.Context, e *Scenario) Finding {
	with := func(labels, annotations map[string]string) func(context.Context, *Scenario) error {
		return func(ctx context.Context, e *Scenario) error {
			u, err := e.wantedNamespace(ctx)
			if err != nil {
				return err
			}
			u.SetLabels(merged(u.GetLabels(), labels))
			u.SetAnnotations(merged(u.GetAnnotations(), annotations))
			return e.tryCreate(ctx, u)
		}
	}
	own := func(ctx context.Context, e *Scenario) error { return e.positiveControlNamespace(ctx) }
	const key = "attack.tenure.example/selected"
	return requests(
		request{what: "make a namespace that attaches routes to a shared gateway", aimed: with(map[string]string{"shared-gateway-access": "true"}, nil), own: own},
		request{what: "make a namespace with a label that somebody may select by", aimed: with(map[string]string{key: "true"}, nil), own: own},
		request{what: "make a namespace with an annotation that somebody may go by", aimed: with(nil, map[string]string{key: "true"}), own: own},
		request{what: "make a namespace that looks as if the platform had applied it", aimed: with(map[string]string{"kustomize.toolkit.fluxcd.io/namespace": e.Platform}, nil), own: own},
	)(ctx, e)
}

// merged returns a map with the entries of two maps.
func merged(have, more map[string]string) map[string]string {
	all := map[string]string{}
	for _, from := range []map[string]string{have, more} {
		for key, value := range from {
			all[key] = value
		}
	}
	return all
}

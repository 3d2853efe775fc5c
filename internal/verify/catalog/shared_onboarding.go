package catalog

import (
	"context"
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addSharedOnboarding(register func(...Attack)) {
	register(Attack{
		ID: "A9", Via: API, Kind: "Tenant",
		Kinds:      []string{"Tenant"},
		Title:      "blocks the delivery of other Tenants with a mistake in its own Tenant",
		Controls:   []string{"a Kustomization for each Tenant"},
		References: []string{"Flux: a Kustomization applies no object if the API server refuses one"},
		Fix:        Fix{Advice: "apply each Tenant by a Kustomization of its own, as tenure create tenant does"},
		Run:        holdsOthersUp,
	})
}

// holdsOthersUp compares the deliveries that applied the Tenants: before Flux applies an object, it sends
// all objects of the same delivery as dry runs, and stops at the first refused object.
func holdsOthersUp(ctx context.Context, e *Scenario) Finding {
	tenants := &unstructured.UnstructuredList{}
	tenants.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenantList"))
	if err := e.Admin.List(ctx, tenants); err != nil && !meta.IsNoMatchError(err) {
		return notProven("cannot list the Tenants: " + firstLine(err.Error()))
	}
	var own flux.Ref
	for _, t := range tenants.Items {
		if t.GetName() == e.Tenant.Name {
			own = flux.AppliedBy(t.GetLabels())
		}
	}
	if own.Kind == "" {
		return e.nothingThere(ctx, notInstalled, "Flux applied no Tenant "+e.Tenant.Name)
	}
	for _, t := range tenants.Items {
		if t.GetName() != e.Tenant.Name && flux.AppliedBy(t.GetLabels()) == own {
			return gotThrough(fmt.Sprintf("%s applies the Tenants %s and %s together, and neither if the API server refuses one", own, e.Tenant.Name, t.GetName()))
		}
	}
	return e.nothingThere(ctx, "a Kustomization for each Tenant", fmt.Sprintf("%s applies no other Tenant than %s", own, e.Tenant.Name))
}

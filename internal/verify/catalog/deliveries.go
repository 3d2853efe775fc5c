package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// delivering returns the Scenario for attacks by a commit to the tenant's repository. The
// platform applies the repository whatever the tenant's own rights are, so an admin creates
// the Kustomization if RBAC does not let the tenant create it. The Kustomization has the
// settings and the namespace of the tenant's own Kustomization, which may be in a namespace of
// the platform. delivering returns an error if it cannot read that Kustomization.
func (e *Scenario) delivering(ctx context.Context) (*Scenario, error) {
	sync := object(flux.Kustomization.GroupVersionKind().GroupVersion().String(), string(flux.Kustomization),
		e.Repository.Kustomization.Namespace, e.Repository.Kustomization.Name, nil)
	if err := e.Admin.Get(ctx, keyOf(sync), sync); err != nil {
		return nil, fmt.Errorf("cannot read the tenant's Kustomization: %w", err)
	}
	d := *e
	d.sync, _, _ = unstructured.NestedMap(sync.Object, "spec")
	if e.platformDelivers() {
		d.deliverIn = e.Repository.Kustomization.Namespace
	}
	if judge(e.tryCreate(ctx, d.kustomization("sync", missingFolder, d.asItSyncs)), "").Control == rbac {
		d.As = e.Admin
	}
	return &d, nil
}

// foreignAccount reports whether the tenant's account is in a namespace of the platform.
func (e *Scenario) foreignAccount() bool {
	return e.hasAccount() && e.Account.Namespace != e.Namespace && !slices.Contains(e.Tenant.Namespaces, e.Account.Namespace)
}

// platformDelivers reports whether the tenant's Kustomization is in a namespace of the platform.
func (e *Scenario) platformDelivers() bool {
	in := e.Repository.Kustomization.Namespace
	return e.hasAccount() && in != e.Namespace && !slices.Contains(e.Tenant.Namespaces, in)
}

// asItSyncs gives a Kustomization the account and the kubeconfig of the tenant's own
// Kustomization.
func (e *Scenario) asItSyncs(spec map[string]any) {
	for _, field := range []string{"serviceAccountName", "kubeConfig"} {
		delete(spec, field)
		if value, ok := e.sync[field]; ok {
			spec[field] = value
		}
	}
}

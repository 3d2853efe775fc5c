package catalog

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addSourceStatus(register func(...Attack)) {
	register(Attack{
		ID: "S4", Via: API,
		Title:      "writes the status of its own source, which says where the artifact is",
		Controls:   []string{"RBAC", "policy that leaves status to Flux"},
		References: []string{"RFC-0003"},
		Fix: Fix{
			Advice: "give the tenant's role no verb on the status of Flux objects: list resources by name instead of *, and do not aggregate flux-edit into it",
			Rights: true,
			Denied: []rbacv1.PolicyRule{
				denied("source.toolkit.fluxcd.io", writing, "*/status"),
				denied("kustomize.toolkit.fluxcd.io", writing, "*/status"),
				denied("helm.toolkit.fluxcd.io", writing, "*/status"),
			},
		},
		Run: requests(request{what: "write the status of its GitRepository", aimed: writeSourceStatus}),
	})
}

func writeSourceStatus(ctx context.Context, e *Scenario) error {
	source := name("s4")
	switch {
	case e.Repository == nil:
	case e.Repository.Source.Namespace == e.Namespace:
		source = e.Repository.Source.Name
	default:
		// Its own source is the platform's, in another namespace: it gets one here.
		u := object("source.toolkit.fluxcd.io/v1", "GitRepository", e.Namespace, source, map[string]any{"spec": map[string]any{
			"interval": "1h", "suspend": true, "url": e.Repository.URL,
		}})
		if err := e.Admin.Create(ctx, u); err != nil {
			return fmt.Errorf("cannot make a source for the tenant: %w", err)
		}
		defer e.remove(u)
	}
	u := object("source.toolkit.fluxcd.io/v1", "GitRepository", e.Namespace, source, nil)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`))
	return e.As.SubResource("status").Patch(ctx, u, patch, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
}

package attack

import (
	"context"
	rbacv1 "k8s.io/api/rbac/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func init() {
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

func writeSourceStatus(ctx context.Context, e *Env) error {
	source := name("s4")
	if e.Repository != nil {
		source = e.Repository.Source.Name
	}
	u := object("source.toolkit.fluxcd.io/v1", "GitRepository", e.Namespace, source, nil)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`))
	return e.As.SubResource("status").Patch(ctx, u, patch, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
}

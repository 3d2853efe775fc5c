package catalog

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addForgedExternalArtifact(register func(...Attack)) {
	register(Attack{
		ID: "S3", Via: API,
		Kinds:    []string{"ExternalArtifact"},
		Title:    "creates an ExternalArtifact",
		Controls: []string{"RBAC", "policy that leaves ExternalArtifacts to the platform"},
		Fix: Fix{
			Advice: "give the tenant's role no write verb on externalartifacts and externalartifacts/status",
			Rights: true,
			Denied: []rbacv1.PolicyRule{
				denied("source.toolkit.fluxcd.io", writing, "externalartifacts", "externalartifacts/status"),
			},
		},
		Run: requests(request{what: "make an ExternalArtifact", aimed: creating(func(e *Scenario) *unstructured.Unstructured {
			return object("source.toolkit.fluxcd.io/v1", "ExternalArtifact", e.Namespace, name("s3"), map[string]any{"spec": map[string]any{}})
		})}),
	})
}

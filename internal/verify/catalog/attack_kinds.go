package catalog

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds that several attacks try.
var (
	// everyInterval are the kinds with an interval or a timeout.
	everyInterval = []string{"Kustomization", "HelmRelease", "GitRepository", "HelmRepository", "OCIRepository", "Bucket", "HelmChart", "Receiver", "Provider", "ImageRepository", "ImagePolicy", "ImageUpdateAutomation", "ArtifactGenerator", "ResourceSet", "ResourceSetInputProvider"}
	// everyStatus are the kinds of Flux with a status that Flux reads.
	everyStatus = []string{"GitRepository/status", "Kustomization/status", "HelmRelease/status", "HelmRepository/status", "OCIRepository/status", "Bucket/status", "HelmChart/status", "Receiver/status", "ImageRepository/status", "ImagePolicy/status", "ImageUpdateAutomation/status", "ArtifactGenerator/status"}
	// everyPod are the kinds that run Pods.
	everyPod = []string{"Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job", "CronJob"}
	// everyGuardrail are the kinds with which a platform limits a namespace.
	everyGuardrail = []string{"ResourceQuota", "LimitRange", "NetworkPolicy", "Role", "RoleBinding"}
	// everySync are the kinds that deliver for a tenant.
	everySync = []string{"Kustomization", "HelmRelease", "GitRepository", "OCIRepository", "HelmRepository", "Bucket"}
)

// resourceOf returns the resource of a kind, with its subresource.
func resourceOf(kind string) string {
	kind, subresource, found := strings.Cut(kind, "/")
	irregular := map[string]string{"Gateway": "gateways", "TenantParameters": "tenantparameters", "*": "*"}
	if resource, is := irregular[kind]; is {
		return resource
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	if found {
		return plural.Resource + "/" + subresource
	}
	return plural.Resource
}

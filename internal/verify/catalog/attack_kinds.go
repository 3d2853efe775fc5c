package catalog

import (
	"slices"
	"strings"
)

const (
	// everyInterval are the kinds with an interval or a timeout.
	everyInterval = "Kustomization HelmRelease GitRepository HelmRepository OCIRepository Bucket HelmChart Receiver Provider ImageRepository ImagePolicy ImageUpdateAutomation ArtifactGenerator ResourceSet ResourceSetInputProvider"
	// everyStatus are the kinds of Flux with a status that Flux reads.
	everyStatus = "GitRepository/status Kustomization/status HelmRelease/status HelmRepository/status OCIRepository/status Bucket/status HelmChart/status Receiver/status ImageRepository/status ImagePolicy/status ImageUpdateAutomation/status ArtifactGenerator/status"
	// everyPod are the kinds that run Pods.
	everyPod = "Pod Deployment ReplicaSet StatefulSet DaemonSet ReplicationController Job CronJob"
	// everyGuardrail are the kinds by which a platform limits a namespace.
	everyGuardrail = "ResourceQuota LimitRange NetworkPolicy Role RoleBinding"
	// everySync are the kinds that deliver for a tenant.
	everySync = "Kustomization HelmRelease GitRepository OCIRepository HelmRepository Bucket"
)

// attackKinds are the kinds that an attack tries, with a subresource after a slash, by the key
// of the attack. A star stands for any kind: the attack is about all of them and tries one. An
// attack that sends no request for an object, but bytes to the proxy, has none.
var attackKinds = map[string]string{
	"A1-api": everyInterval, "A2-api": "Kustomization HelmRelease GitRepository HelmRepository HelmChart OCIRepository Bucket ArtifactGenerator Alert Provider Receiver ImageRepository ImagePolicy ImageUpdateAutomation ResourceSet ResourceSetInputProvider Namespace",
	"A3-api": everyInterval, "A3-api-shard": "Kustomization", "A4-api": "*",
	"A5-api": everyGuardrail, "A5-api-ServiceAccount": "ServiceAccount", "A5-api-workloads": "Deployment/scale StatefulSet/scale Pod/eviction HorizontalPodAutoscaler Canary", "A6-api": "Kustomization", "A7-api": "Namespace", "A8-proxy": "", "A9-api": "Pod", "A9-api-Tenant": "Tenant",
	"I1-api": "Kustomization", "I1-api-HelmRelease": "HelmRelease", "I1-git": "Kustomization", "I2-api": "Kustomization",
	"I3-api": "Kustomization HelmRelease", "I3-git": "Kustomization",
	"I4-api": "ClusterRoleBinding Role RoleBinding", "I4-api-RoleBinding": "RoleBinding", "I4-git": "RoleBinding", "I4-git-HelmRelease": "RoleBinding",
	"I5-api": "Namespace ValidatingWebhookConfiguration PersistentVolume CustomResourceDefinition", "I5-git": "Namespace", "I5-git-HelmRelease": "Namespace",
	"I6-api": "Namespace Namespace/status Namespace/finalize", "I7-api": "Namespace Namespace/status Namespace/finalize",
	"I8-api": "ServiceAccount ServiceAccount/token", "I8-api-Secret": "Secret", "I8-proxy": "ServiceAccount/token",
	"I9-api": everyPod, "I10-api": everySync,
	"I11-api": "Kustomization", "I11-api-HelmRelease": "HelmRelease", "I11-api-HelmRelease-storage": "HelmRelease", "I11-git": "*",
	"I12-api": "*", "I12-proxy": "",
	"I13-api": "Kustomization HelmRelease", "I13-api-exec": "Kustomization HelmRelease Secret", "I13-api-TLS": "Kustomization HelmRelease Secret", "I13-proxy": "", "I14-proxy": "",
	"I15-api": "Tenant", "I15-api-TenantResource": "TenantResource", "I15-api-manager": "RoleBinding",
	"I16-api": "Namespace", "I17-api": "Tenant TenancyProfile TenantParameters", "I18-api": "Namespace",
	"I19-api": "GitRepository OCIRepository HelmRepository Bucket ImageRepository Provider", "I19-api-Kustomization": "Kustomization",
	"I20-api": "Namespace *", "I21-api-labels": "Namespace", "I22-api": "", "I23-api": "ServiceAccount", "I24-api": everyPod + " ServiceAccount ServiceAccount/token Secret",
	"I25-api": "RoleBinding ClusterRoleBinding Kustomization Namespace ClusterRole", "I26-api": "ResourceSet", "I26-api-copyFrom": "ResourceSet", "I26-api-dependsOn": "ResourceSet",
	"N1-api": "Alert", "N2-api": "Receiver", "N3-api": "Receiver", "N4-api": "Provider", "N5-api": "Secret", "N6-api": "Canary MetricTemplate AlertProvider",
	"S1-api": "Kustomization", "S1-api-HelmRelease": "HelmRelease", "S1-api-ImagePolicy": "ImagePolicy", "S1-api-ImageUpdateAutomation": "ImageUpdateAutomation",
	"S2-api": "ArtifactGenerator", "S3-api": "ExternalArtifact", "S4-api": everyStatus,
	"S5-api": "Kustomization", "S5-api-HelmRelease": "HelmRelease", "S7-git": "Kustomization", "S8-git": "Kustomization", "S8-git-loop": "Kustomization",
	"S9-api":  "GitRepository HelmRepository OCIRepository Bucket ImageRepository ResourceSetInputProvider",
	"S10-git": "Kustomization", "S10-git-shared": "Kustomization", "S11-api": "ExternalArtifact",
	"S12-api": "Canary", "S13-api": "HelmRelease HelmChart", "S14-api": "GitRepository OCIRepository HelmRelease HelmChart Bucket Secret",
	"W1-api": "ResourceQuota ResourceQuota/status LimitRange NetworkPolicy", "W2-api": "*", "W2-proxy": "*", "W3-api": everyPod + " Pod/ephemeralcontainers",
	"W4-api": "Service Service/status", "W5-api": "Ingress HTTPRoute GRPCRoute TLSRoute Gateway", "W6-api": "PersistentVolumeClaim StatefulSet",
	"W7-api": everyPod, "W8-api": "NetworkPolicy", "W9-api": "EndpointSlice Endpoints Pod/status", "W10-api": everyPod,
	"W11-api": everyPod + " ResourceClaim", "W12-api": "ClusterNetworkPolicy AdminNetworkPolicy NetworkPolicy",
	"W4-git": "Service", "W5-git": "Ingress", "W6-git": "PersistentVolumeClaim", "W9-git": "EndpointSlice",
}

// kindsOf returns the kinds that an attack tries, sorted.
func kindsOf(key string) []string {
	kinds := strings.Fields(attackKinds[key])
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

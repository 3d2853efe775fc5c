package tenancy

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxPlatformWorkloads is the maximum number of workloads of the platform that the parameters
// of a namespace list.
const MaxPlatformWorkloads = 256

// WorkloadKinds returns the kinds of [PlatformWorkloads].
func WorkloadKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	}
}

// appliers are the prefixes of the labels that name the sync that applied an object.
var appliers = []string{"kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "resourceset.fluxcd.controlplane.io/"}

// FluxLabels returns the labels of an object that name the sync that applied it.
func FluxLabels(labels map[string]string) map[string]string {
	var kept map[string]string
	for _, prefix := range appliers {
		for _, field := range []string{"name", "namespace"} {
			value, ok := labels[prefix+field]
			if !ok {
				continue
			}
			if kept == nil {
				kept = map[string]string{}
			}
			kept[prefix+field] = value
		}
	}
	return kept
}

// PlatformWorkloads returns the objects that syncs of the platform applied, as KIND/NAME, sorted.
// Objects of a delegated sync belong to the tenant.
func PlatformWorkloads(objects []metav1.PartialObjectMetadata, profile *v1alpha1.TenancyProfileSpec) []string {
	var workloads []string
	for i := range objects {
		for _, prefix := range appliers {
			namespace, name := objects[i].Labels[prefix+"namespace"], objects[i].Labels[prefix+"name"]
			delegated := slices.ContainsFunc(profile.DelegatedSyncs, func(d v1alpha1.DelegatedSync) bool { return d.Namespace == namespace && d.Name == name })
			if slices.Contains(profile.PlatformNamespaces, namespace) && !delegated {
				workloads = append(workloads, objects[i].Kind+"/"+objects[i].Name)
			}
		}
	}
	slices.Sort(workloads)
	return slices.Compact(workloads)
}

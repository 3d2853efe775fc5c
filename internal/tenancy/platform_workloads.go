package tenancy

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxPlatformWorkloads is the maximum number of workloads of the platform that the parameters
// of a namespace list.
const MaxPlatformWorkloads = 256

const jobKind = "Job"

// WorkloadKinds returns the kinds of [PlatformWorkloads].
func WorkloadKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		{Group: "batch", Version: "v1", Kind: "CronJob"},
		{Group: "batch", Version: "v1", Kind: jobKind},
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

// PlatformWorkloads returns the objects that syncs of the platform applied, as KIND/NAME, sorted,
// with Jobs last: finished Jobs may pile up, and must not take the place of others in a list with a limit.
// Objects of a delegated sync belong to the tenant.
func PlatformWorkloads(objects []metav1.PartialObjectMetadata, profile *v1alpha1.TenancyProfileSpec) []string {
	var workloads, jobs []string
	for i := range objects {
		o := &objects[i]
		switch workload := o.Kind + "/" + o.Name; {
		case !appliedByPlatform(o.Labels, profile):
		case o.Kind == jobKind:
			jobs = append(jobs, workload)
		default:
			workloads = append(workloads, workload)
		}
	}
	slices.Sort(workloads)
	slices.Sort(jobs)
	return append(workloads, jobs...)
}

// appliedByPlatform reports whether the labels of an object name a sync of the platform, and not one that
// the platform delegated to a tenant.
func appliedByPlatform(labels map[string]string, profile *v1alpha1.TenancyProfileSpec) bool {
	return slices.ContainsFunc(appliers, func(prefix string) bool {
		namespace, name := labels[prefix+"namespace"], labels[prefix+"name"]
		return slices.Contains(profile.PlatformNamespaces, namespace) &&
			!slices.ContainsFunc(profile.DelegatedSyncs, func(d v1alpha1.DelegatedSync) bool { return d.Namespace == namespace && d.Name == name })
	})
}

// PodSelector returns the selector by which a workload takes Pods for its own, or nil. Kubernetes
// allows no change of it. A Job has one of its own only if its manifest chooses the labels; otherwise they have
// the UID of the Job. It leaves out selectors that name no label which a Pod must have.
func PodSelector(workload *unstructured.Unstructured) *metav1.LabelSelector {
	if manual, _, _ := unstructured.NestedBool(workload.Object, "spec", "manualSelector"); workload.GetKind() == jobKind && !manual {
		return nil
	}
	content, _, _ := unstructured.NestedMap(workload.Object, "spec", "selector")
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, selector); err != nil {
		return nil
	}
	demands := slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpExists
	})
	if len(selector.MatchLabels) == 0 && !demands {
		return nil
	}
	return selector
}

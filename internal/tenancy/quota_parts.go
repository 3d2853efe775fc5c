package tenancy

import (
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

const (
	// LabelDivided is the prefix of the labels of namespaces that have a part of a
	// Tenant's quota. The suffix names the class of resources that the quota counts, see
	// [DividedClasses]. Only the platform may set these labels. They tell the API server
	// which requests may have to wait until the manager moves a part.
	LabelDivided = "divided-quota.tenure.dev/"
	// DividedValue is the value of these labels.
	DividedValue = "true"

	// AnnotationMoving is on a namespace's part of a quota while the manager is about to
	// change it. Requests in the namespace wait for a moment: Kubernetes recounts the
	// usage when a quota changes, and misses requests that are still in progress.
	AnnotationMoving = "tenure.dev/moving"
	// AnnotationWanted is the prefix of the annotations of a namespace's part of a quota
	// with what the waiting requests in the namespace need, one for each replica of the
	// webhook: see [QuotaRequests].
	AnnotationWanted = "wanted.tenure.dev/"
)

// DividedClasses are the suffixes of the labels of [LabelDivided].
var DividedClasses = []string{classPods, classClaims, classServices, classObjects}

const (
	classPods     = "pods"
	classClaims   = "persistentvolumeclaims"
	classServices = "services"
	classObjects  = "objects"
)

// SharedByTenant reports whether a quota applies to all namespaces of the Tenant together.
func SharedByTenant(q v1alpha1.TenantQuota) bool { return q.Scope != "Namespace" }

// dividedLabels returns the labels for the namespaces of a Tenant with divided quotas.
func dividedLabels(quotas []v1alpha1.TenantQuota) map[string]string {
	labels := map[string]string{}
	for _, q := range quotas {
		for name := range q.Hard {
			if SharedByTenant(q) {
				labels[LabelDivided+dividedClass(string(name))] = DividedValue
			}
		}
	}
	return labels
}

// dividedClass returns the class of resources that a name in a quota counts.
func dividedClass(name string) string {
	switch {
	case strings.HasPrefix(name, "services"), name == "count/services":
		return classServices
	case name == "requests.storage", strings.Contains(name, ".storageclass."), strings.HasSuffix(name, classClaims):
		return classClaims
	case strings.HasPrefix(name, "count/") && name != "count/pods",
		slices.Contains([]string{"configmaps", "secrets", "replicationcontrollers", "resourcequotas"}, name):
		return classObjects
	}
	return classPods
}

package tenancy

import (
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

const (
	// LabelDivided begins the labels of namespaces that have a part of a Tenant's quota:
	// the rest says what the quota counts, see [DividedClasses]. Only the platform may
	// set them. By them the API server knows which requests may have to wait until a
	// part is moved.
	LabelDivided = "divided-quota.tenure.dev/"
	// DividedValue is the value of these labels.
	DividedValue = "true"

	// AnnotationMoving is on a namespace's part of a quota while it is about to change.
	// Requests in the namespace wait for a moment: Kubernetes counts anew what is used
	// when a quota changes, and does not count what is on its way.
	AnnotationMoving = "tenure.dev/moving"
	// AnnotationWanted is on a namespace's part of a quota, and says what requests that
	// wait in the namespace need: see [Wishes].
	AnnotationWanted = "tenure.dev/wanted"
)

// DividedClasses are what the labels of [LabelDivided] end with.
var DividedClasses = []string{classPods, classClaims, classServices, classObjects}

const (
	classPods     = "pods"
	classClaims   = "persistentvolumeclaims"
	classServices = "services"
	classObjects  = "objects"
)

// OfTenant says whether a quota is that of all namespaces of the Tenant together.
func OfTenant(q v1alpha1.TenantQuota) bool { return q.Scope != "Namespace" }

// dividedLabels are the labels of the namespaces of a Tenant with divided quotas.
func dividedLabels(quotas []v1alpha1.TenantQuota) map[string]string {
	labels := map[string]string{}
	for _, q := range quotas {
		for name := range q.Hard {
			if OfTenant(q) {
				labels[LabelDivided+dividedClass(string(name))] = DividedValue
			}
		}
	}
	return labels
}

// dividedClass is what has to be looked at for a name in a quota.
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

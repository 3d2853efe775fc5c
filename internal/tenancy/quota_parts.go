package tenancy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// QuotasOf returns the Tenant's quotas that apply to one of its namespaces. have are the labels of
// the namespace. QuotasOf also considers the labels that the Tenant gives the namespace, which may
// not be set yet. An invalid selector selects every namespace: the quota then limits more than it
// should, and not less.
func QuotasOf(t *v1alpha1.Tenant, namespace string, have map[string]string) []v1alpha1.TenantQuota {
	if !slices.ContainsFunc(t.Spec.Quotas, func(q v1alpha1.TenantQuota) bool { return q.NamespaceSelector != nil }) {
		return t.Spec.Quotas
	}
	set := labels.Set{}
	given, _ := NamespaceMetadata(t, namespace, have)
	maps.Copy(set, have)
	maps.Copy(set, given)
	return slices.DeleteFunc(slices.Clone(t.Spec.Quotas), func(q v1alpha1.TenantQuota) bool {
		if q.NamespaceSelector == nil {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(q.NamespaceSelector)
		return err == nil && !selector.Matches(set)
	})
}

// checkWhole returns the amounts of the quota at an index that are not whole numbers although they count objects or
// devices. [DistributeQuota] rounds them down. Of a quota with scope Namespace the API server refuses them.
func checkWhole(index int, q *v1alpha1.TenantQuota) (problems []error) {
	if !SharedByTenant(*q) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(q.Hard)) {
		amount := q.Hard[name]
		// Processors are divided by thousandths, and bytes that are not whole are harmless: 0.1Gi is no whole number.
		if measured(string(name)) || amount.CmpInt64(math.MaxInt64) > 0 || amount.CmpInt64(amount.Value()) == 0 {
			continue
		}
		problems = append(problems, fmt.Errorf("spec.quotas[%d].hard has %s of %s, which are counted in whole numbers, and the tenant gets %d: write a whole number", index, amount.String(), name, amount.Value()-1))
	}
	return problems
}

// measured reports whether a resource is an amount of processors or bytes.
func measured(name string) bool {
	return strings.HasSuffix(name, "cpu") || strings.HasSuffix(name, "memory") || strings.HasSuffix(name, "storage") || strings.Contains(name, "hugepages-")
}

// dividedLabels returns the labels of a namespace with parts of quotas.
func dividedLabels(quotas []v1alpha1.TenantQuota) map[string]string {
	divided := map[string]string{}
	for _, q := range quotas {
		for name := range q.Hard {
			if SharedByTenant(q) {
				divided[LabelDivided+dividedClass(string(name))] = DividedValue
			}
		}
	}
	return divided
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

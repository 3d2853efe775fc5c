package replication

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels of the objects of Capsule's kinds, by which clients of Capsule find them.
const (
	labelManagedBy = "projectcapsule.dev/managed-by"
	labelCreatedBy = "projectcapsule.dev/created-by"
	replications   = "replications"
	// labelResources is the label of these objects in older versions of Capsule.
	labelResources = "capsule.clastix.io/resources"
)

// maxProcessed is the maximum number of processedItems in the schema.
const maxProcessed = 1024

// processed is an object and the problem with it; none if the object is in place.
type processed struct {
	wantedObject
	message string
}

// failures returns how many objects are not in place.
func failures(all []processed) int {
	failed := 0
	for _, p := range all {
		if p.message != "" {
			failed++
		}
	}
	return failed
}

// processedItems returns the objects in the format of Capsule's status: those that are not in place
// first, at most [maxProcessed].
func processedItems(all []processed) []v1beta2.ProcessedItem {
	var items []v1beta2.ProcessedItem
	for _, p := range all {
		kind := p.object.GroupVersionKind()
		status := v1beta2.ProcessedStatus{
			Type: conditionReady, Status: metav1.ConditionTrue, Message: p.message,
			Created: p.object.GetLabels()[replication.LabelReplicated] == replication.Made, ClusterScoped: p.object.GetNamespace() == "",
		}
		if p.message != "" {
			status.Status = metav1.ConditionFalse
		}
		items = append(items, v1beta2.ProcessedItem{
			Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Name: p.object.GetName(), Namespace: p.object.GetNamespace(),
			Tenant: p.tenant, Origin: fmt.Sprintf("%d/%s", p.entry.index, p.origin), Status: status,
		})
	}
	slices.SortStableFunc(items, func(a, b v1beta2.ProcessedItem) int {
		return cmp.Or(
			strings.Compare(string(a.Status.Status), string(b.Status.Status)), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name),
		)
	})
	return items[:min(len(items), maxProcessed)]
}

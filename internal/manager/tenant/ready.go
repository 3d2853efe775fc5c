package tenant

import (
	"github.com/tenure-dev/tenure/api/v1alpha1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionReplicated is a condition that package replication sets on a Tenant with
// objects.
const conditionReplicated = "Replicated"

// ready returns the condition Ready of a Tenant with these conditions. It is True if
// every condition that the Tenant needs is True for its generation. Otherwise it has the
// reason and the message of the first False condition or, if there is none, of the first
// condition that is not yet True.
func ready(tenant *v1alpha1.Tenant, conditions []metav1.Condition) metav1.Condition {
	needed := []string{ConditionProvisioned}
	if len(tenant.Spec.Sync) > 0 {
		needed = append(needed, ConditionSynced)
	}
	if len(tenant.Spec.Objects) > 0 {
		needed = append(needed, conditionReplicated)
	}
	c := metav1.Condition{Type: ConditionReady, ObservedGeneration: tenant.Generation, Status: metav1.ConditionTrue}
	for _, kind := range needed {
		part := apimeta.FindStatusCondition(conditions, kind)
		if part == nil || part.ObservedGeneration != tenant.Generation {
			part = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: ReasonProgressing, Message: "waiting for condition " + kind}
		}
		if kind == ConditionProvisioned || part.Status == metav1.ConditionFalse || c.Status == metav1.ConditionTrue && part.Status != metav1.ConditionTrue {
			c.Status, c.Reason, c.Message = part.Status, part.Reason, part.Message
		}
		if c.Status == metav1.ConditionFalse {
			break
		}
	}
	return c
}

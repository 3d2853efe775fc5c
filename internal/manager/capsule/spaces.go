package capsule

import (
	"context"
	"fmt"
	"maps"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conditionProvisioned is the condition of ours that reports whether the tenant has its
// namespaces, roles and quotas.
const conditionProvisioned = "Provisioned"

// spaces returns the namespaces of the tenant in the format of Capsule's status. It lists a new
// namespace once its owners have their rights, or once that has failed: clients of Capsule wait
// until the status lists a namespace, and then use it. before has the entries of the present
// status, whose conditions keep their times.
func (r *TenantReconciler) spaces(ctx context.Context, s *state, before []v1beta2.TenantSpace) ([]v1beta2.TenantSpace, error) {
	known := map[string]v1beta2.TenantSpace{}
	for _, space := range before {
		known[space.Name] = space
	}
	var all []v1beta2.TenantSpace
	for _, name := range s.ours.Status.Namespaces {
		ns := &corev1.Namespace{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, ns); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("cannot read namespace %s: %w", name, err)
		}
		space := v1beta2.TenantSpace{Name: name, UID: ns.UID, Metadata: s.metadata(ns)}
		ready := s.spaceReady(ns)
		if old := known[name]; old.UID == ns.UID {
			space.Conditions = old.DeepCopy().Conditions
		} else if ready.Status == metav1.ConditionUnknown {
			continue
		}
		conditions := []metav1.Condition{ready}
		// As the condition of the Tenant, it changes with the parameters of the namespace.
		if !s.progressing() || apimeta.FindStatusCondition(space.Conditions, conditionCordoned) == nil {
			conditions = append(conditions, cordoned(s.ours.Spec.Cordoned || tenancy.Cordoned(ns.Labels)))
		}
		for _, condition := range conditions {
			condition.Message = shorten(condition.Message)
			apimeta.SetStatusCondition(&space.Conditions, condition)
		}
		all = append(all, space)
	}
	return all, nil
}

// spaceReady returns the condition Ready of a namespace.
func (s *state) spaceReady(ns *corev1.Namespace) metav1.Condition {
	c := metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse}
	if !ns.DeletionTimestamp.IsZero() {
		c.Reason, c.Message = reasonTerminating, "the namespace is being deleted"
		return c
	}
	provisioned := s.oursCondition(conditionProvisioned)
	if provisioned != nil && provisioned.Status == metav1.ConditionFalse {
		c.Reason, c.Message = reasonFailed, provisioned.Message
		return c
	}
	_, inForce := ns.Labels[v1alpha1.LabelParameters]
	if !inForce || provisioned == nil || provisioned.Status != metav1.ConditionTrue {
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reasonProgressing, "the namespace does not have all objects of the Tenant yet"
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonSucceeded, "the namespace has all objects of the Tenant"
	return c
}

// metadata returns the labels and annotations that the Tenant gives a namespace.
func (s *state) metadata(ns *corev1.Namespace) *v1beta2.Metadata {
	labels, annotations := tenancy.SelectedMetadata(s.ours, ns.Name, ns.Labels)
	maps.Copy(labels, s.ours.Spec.Namespaces.Labels)
	maps.Copy(annotations, s.ours.Spec.Namespaces.Annotations)
	out := &v1beta2.Metadata{Labels: shared(labels, ns.Labels), Annotations: shared(annotations, ns.Annotations)}
	delete(out.Labels, v1alpha1.LabelCapsuleTenant)
	delete(out.Labels, v1alpha1.LabelCapsuleCordoned)
	delete(out.Labels, v1beta2.LabelRules)
	delete(out.Labels, v1beta2.LabelCollisionScope)
	if len(out.Labels) == 0 {
		out.Labels = nil
	}
	return out
}

// shared returns the entries of wanted that have has too.
func shared(wanted, have map[string]string) map[string]string {
	var out map[string]string
	for key, value := range wanted {
		if got, ok := have[key]; ok && got == value {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

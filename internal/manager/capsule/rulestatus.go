package capsule

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/capsule"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ruleStatus returns an empty RuleStatus for watches.
func ruleStatus() client.Object {
	return &v1beta2.RuleStatus{TypeMeta: metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(), Kind: "RuleStatus"}}
}

// rules writes the rules of a Tenant of Capsule into a RuleStatus in each of its namespaces. It
// also creates the RuleStatus of a Tenant without rules, because clients of Capsule look for it. It
// runs before the label that puts the rules in force is set: in a namespace with the label and
// without a RuleStatus, the API server refuses every request that a rule may apply to.
//
// If a RuleStatus cannot be computed, rules returns the problem for the status of the Tenant, and
// the namespace keeps the RuleStatus that it has. With onlyNew, rules skips the namespaces that
// have a RuleStatus.
func (r *TenantReconciler) rules(ctx context.Context, s *state, onlyNew bool) (problem, err error) {
	var namespaces corev1.NamespaceList
	if err := r.Client.List(ctx, &namespaces, client.MatchingLabels{v1alpha1.LabelCapsuleTenant: s.theirs.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the namespaces of tenant %s: %w", s.theirs.Name, err)
	}
	var problems []error
	audiences := capsule.Audiences(s.theirs, s.configuration, &s.result)
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		if !ns.DeletionTimestamp.IsZero() {
			continue
		}
		if onlyNew {
			err := r.Client.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: v1beta2.RulesName}, &v1beta2.RuleStatus{})
			if err == nil {
				continue
			}
			if !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("cannot read the rules of namespace %s: %w", ns.Name, err)
			}
		}
		rules, err := capsule.Rules(s.theirs, &ns.ObjectMeta)
		if err != nil {
			problems = append(problems, fmt.Errorf("namespace %s: %w", ns.Name, err))
			continue
		}
		if err := r.writeRules(ctx, s.theirs, ns.Name, rules, audiences); err != nil {
			return nil, err
		}
	}
	return errors.Join(problems...), nil
}

func (r *TenantReconciler) writeRules(ctx context.Context, tenant *v1beta2.Tenant, namespace string, rules []v1beta2.Unknown, audiences []v1beta2.RuleAudience) error {
	labels, owners := map[string]string{v1alpha1.LabelCapsuleTenant: tenant.Name}, []metav1.OwnerReference{reference(tenant)}
	have := &v1beta2.RuleStatus{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1beta2.RulesName}, have)
	switch {
	case apierrors.IsNotFound(err):
		have = &v1beta2.RuleStatus{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1beta2.RulesName, Labels: labels, OwnerReferences: owners}}
		err = r.Client.Create(ctx, have, client.FieldOwner(FieldManager))
	case err == nil && (!equality.Semantic.DeepEqual(have.OwnerReferences, owners) || !equality.Semantic.DeepEqual(have.Labels, labels)):
		// The Tenant that had the namespace before, or an older version of Tenure, wrote it.
		before := have.DeepCopy()
		have.Labels, have.OwnerReferences = labels, owners
		err = r.Client.Patch(ctx, have, client.MergeFrom(before), client.FieldOwner(FieldManager))
	}
	if err != nil {
		return fmt.Errorf("cannot read or create the rules of namespace %s: %w", namespace, err)
	}
	before := have.DeepCopy()
	have.Status.Rules, have.Status.Audiences, have.Status.ObservedGeneration = rules, audiences, have.Generation
	apimeta.SetStatusCondition(&have.Status.Conditions, metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionTrue, Reason: reasonSucceeded, Message: "the rules are those of the Tenant", ObservedGeneration: have.Generation,
	})
	if equality.Semantic.DeepEqual(before.Status, have.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, have, client.MergeFrom(before), client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("cannot write the rules of namespace %s: %w", namespace, err)
	}
	return nil
}

package ablation

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// takenBack returns the control that the manager deletes a granted artifact when the grant ends. Without
// the manager there would be no grants. So an admission policy removes the control: it removes the
// manager's label from the manager's copies, and the manager does not change objects without the label.
func takenBack() Control {
	return Control{
		Name: "the manager, which deletes the artifact when the grant ends",
		Away: "the API server removes the label by which the manager recognizes its copies, so that the manager ignores them; the rule about the manager's requests is removed, too",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			// This rule refuses a copy without the manager's label.
			enforce, err := rule("manager").remove(ctx, t)
			if err != nil {
				return enforce, err
			}
			policy, binding := disowning()
			restore := func(ctx context.Context) error {
				return errors.Join(client.IgnoreNotFound(t.admin.Delete(ctx, binding)), client.IgnoreNotFound(t.admin.Delete(ctx, policy)), t.disowned(ctx, false), enforce(ctx))
			}
			if err := errors.Join(t.admin.Create(ctx, policy), t.admin.Create(ctx, binding)); err != nil {
				return restore, err
			}
			return restore, t.disowned(ctx, true)
		},
	}
}

// disowning returns a policy that removes the manager's label from all new ExternalArtifacts.
func disowning() (*admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding) {
	meta := metav1.ObjectMeta{Name: sentinel + "-disowning"}
	fail := admissionv1.Fail
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy:      &fail,
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"source.toolkit.fluxcd.io"}, APIVersions: []string{"*"}, Resources: []string{"externalartifacts"}},
			},
		}}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "labelled", Expression: fmt.Sprintf("has(object.metadata.labels) && %q in object.metadata.labels", tenancy.LabelManaged),
		}},
		Mutations: []admissionv1.Mutation{{
			PatchType: admissionv1.PatchTypeJSONPatch,
			JSONPatch: &admissionv1.JSONPatch{Expression: fmt.Sprintf("[JSONPatch{op: 'remove', path: '/metadata/labels/' + jsonpatch.escapeKey(%q)}]", tenancy.LabelManaged)},
		}},
	}}
	return policy, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name}}
}

// disowned waits until new copies lose the label, or keep it.
func (t *target) disowned(ctx context.Context, want bool) error {
	return poll(ctx, "copies to lose the manager's label, or to keep it", func() (bool, error) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "ExternalArtifact"})
		u.SetNamespace(t.account.Namespace)
		u.SetName(sentinel)
		u.SetLabels(map[string]string{tenancy.LabelManaged: tenancy.ManagedValue})
		if err := t.admin.Create(ctx, u, client.DryRunAll); err != nil {
			return false, err
		}
		return (u.GetLabels()[tenancy.LabelManaged] == "") == want, nil
	})
}

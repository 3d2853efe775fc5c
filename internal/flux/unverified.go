package flux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unverifiedPolicy is the name of the admission policy of [SkipVerification] and of its binding.
const unverifiedPolicy = "tenure-unverified"

// SkipVerification makes the API server remove spec.verify from the OCIRepositories of one
// address, and returns when that is in effect. The local cluster serves the artifact of this
// address itself, without the signature of its authors. It needs the CRD of OCIRepository and
// MutatingAdmissionPolicy at v1. It returns an error if the API server refuses the policy, or
// if the policy does not take effect in time.
func SkipVerification(ctx context.Context, c client.Client, address string) error {
	quoted, _ := json.Marshal(address) // strings always marshal, and JSON's are CEL's
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: unverifiedPolicy},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{sourcev1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"ocirepositories"},
					},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{
				Name:       "served-here",
				Expression: "has(object.spec.verify) && object.spec.url == " + string(quoted),
			}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "remove", path: "/spec/verify"}]`},
			}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: unverifiedPolicy},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: unverifiedPolicy},
	}
	for _, obj := range []client.Object{policy, binding} {
		if err := c.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot install the policy for unsigned artifacts: %w", err)
		}
	}
	var refused error
	err := wait.PollUntilContextTimeout(ctx, retryPause, policyTimeout, true, func(ctx context.Context) (bool, error) {
		obj := &sourcev1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: unverifiedPolicy},
			Spec: sourcev1.OCIRepositorySpec{
				URL: address, Interval: metav1.Duration{Duration: time.Hour},
				Verify: &sourcev1.OCIRepositoryVerification{Provider: "cosign"},
			},
		}
		refused = c.Create(ctx, obj, client.DryRunAll)
		return refused == nil && obj.Spec.Verify == nil, nil
	})
	if err != nil {
		return fmt.Errorf("cannot see the policy for unsigned artifacts take effect: %w", errors.Join(err, refused))
	}
	return nil
}

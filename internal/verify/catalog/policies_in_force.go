package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// policyPatience is the maximum time to wait until the API server enforces a policy. The API server reads
// changed policies once a second, and compiles them.
const policyPatience = time.Minute

// awaitFleetPolicies waits until the API server enforces the fleet's ValidatingAdmissionPolicies and
// MutatingAdmissionPolicies, if it has any.
func awaitFleetPolicies(ctx context.Context, admin client.Client) error {
	const name = VictimNamespace + "-policies"
	for _, kind := range []struct {
		policies client.ObjectList
		await    func(context.Context, client.Client, string) error
	}{
		{&admissionregistrationv1.ValidatingAdmissionPolicyList{}, AwaitPolicies},
		{&admissionregistrationv1.MutatingAdmissionPolicyList{}, awaitMutations},
	} {
		err := admin.List(ctx, kind.policies, client.Limit(1))
		if meta.IsNoMatchError(err) || err == nil && meta.LenList(kind.policies) == 0 {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot see whether the cluster has policies: %w", err)
		}
		if err := errors.Join(kind.await(ctx, admin, name), RemovePolicy(context.WithoutCancel(ctx), admin, name)); err != nil {
			return err
		}
	}
	return nil
}

// awaitMutations is [AwaitPolicies] for MutatingAdmissionPolicies, which the API server reads separately.
// The last policy sets a label.
func awaitMutations(ctx context.Context, admin client.Client, name string) error {
	const label = "tenure-attack-policies"
	rules := []admissionregistrationv1.NamedRuleWithOperations{{
		ResourceNames: []string{name}, RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		},
	}}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   &admissionregistrationv1.MatchResources{ResourceRules: rules},
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"` + label + `": "seen"}}}`},
			}},
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	for _, o := range []client.Object{policy, binding} {
		if err := admin.Create(ctx, o); err != nil {
			return fmt.Errorf("cannot see whether the cluster's policies are in force: %w", err)
		}
	}
	var last error
	err := pollUntil(ctx, policyPatience, func(ctx context.Context) (bool, error) {
		seen := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
		last = admin.Create(ctx, seen, client.DryRunAll)
		return seen.Labels[label] != "", nil
	})
	if err != nil {
		return fmt.Errorf("the API server does not apply the policy %s, and so maybe not those of the fleet: %w (its last answer: %s)", name, err, fmt.Sprint(last))
	}
	return nil
}

// AwaitPolicies waits until the API server enforces the existing ValidatingAdmissionPolicies and bindings:
// an earlier attack would get through. The API server reads all policies in one order and all bindings in
// another, so once the last change of each has taken effect, all earlier changes have, too. The last
// changes are a policy and a binding with this name, which together forbid a ConfigMap with a new name in
// each call. They remain: see [RemovePolicy]. AwaitPolicies returns an error if it cannot write them, or if
// the API server does not enforce them within a minute.
func AwaitPolicies(ctx context.Context, admin client.Client, name string) error {
	forbidden := fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
	configMaps := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, write := range []struct {
		object client.Object
		edit   func()
	}{
		{policy, func() {
			policy.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: configMaps}}},
				Validations:      []admissionregistrationv1.Validation{{Expression: "object.metadata.name != '" + forbidden + "'"}},
			}
		}},
		{binding, func() {
			binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				MatchResources: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					ResourceNames: []string{forbidden}, RuleWithOperations: configMaps,
				}}},
			}
		}},
	} {
		if err := retryOnConflict(func() error {
			_, err := controllerutil.CreateOrUpdate(ctx, admin, write.object, func() error { write.edit(); return nil })
			return err
		}); err != nil {
			return fmt.Errorf("cannot see whether the cluster's policies are in force: %w", err)
		}
	}
	var last error
	err := pollUntil(ctx, policyPatience, func(ctx context.Context) (bool, error) {
		last = admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: forbidden}}, client.DryRunAll)
		return apierrors.IsInvalid(last), nil
	})
	if err != nil {
		return fmt.Errorf("the API server does not enforce the policy %s, and so maybe not those of the fleet: %w (its last answer: %w)", name, err, last)
	}
	return nil
}

// RemovePolicy removes the policies and the bindings of [AwaitPolicies] and awaitMutations. It returns the
// error of the API server, but no error if there is no such policy.
func RemovePolicy(ctx context.Context, admin client.Client, name string) error {
	in := metav1.ObjectMeta{Name: name}
	for _, o := range []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: in}, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: in},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: in}, &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: in},
	} {
		if err := client.IgnoreNotFound(admin.Delete(ctx, o)); err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("cannot remove policy %s: %w", name, err)
		}
	}
	return nil
}

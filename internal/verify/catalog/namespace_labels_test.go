package catalog

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// changingLabels returns a scenario whose tenant may change the labels of its namespace team, which has the label
// stage, if the patch contains accepted. A policy refuses everything else.
func changingLabels(accepted string, objects ...client.Object) *Scenario {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"stage": "test", corev1.LabelMetadataName: "team"}}}
	return newFakeEnv(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
			if data, err := p.Data(o); err != nil || accepted != "" && strings.Contains(string(data), accepted) {
				return err
			}
			return forbidden(`ValidatingAdmissionPolicy 'tenure-namespaces' with binding 'b' denied request: no`)
		},
	}, append(slices.Clone(objects), ns)...)
}

// TestLeaves lets the tenant change one label of its namespace.
func TestLeaves(t *testing.T) {
	t.Parallel()
	tenant := func(selector map[string]any, allowed ...any) []client.Object {
		return []client.Object{object("tenure.dev/v1alpha1", "Tenant", "", "team", map[string]any{"spec": map[string]any{
			"namespaces": map[string]any{"allowed": map[string]any{"labels": allowed}},
			"quotas":     []any{map[string]any{"name": "tests", "hard": map[string]any{"pods": "1"}, "namespaceSelector": selector}},
		}})}
	}
	selects := func(selector string) metav1.LabelSelector {
		parsed, err := metav1.ParseToLabelSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		return *parsed
	}
	matching := func(selector string) *admissionv1.MatchResources {
		if selector == "" {
			return nil
		}
		return &admissionv1.MatchResources{NamespaceSelector: new(selects(selector))}
	}
	fleet := metav1.ObjectMeta{Name: "fleet"}
	bound := func(policy, binding string) []client.Object {
		return []client.Object{
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: fleet, Spec: admissionv1.ValidatingAdmissionPolicySpec{MatchConstraints: matching(policy)}},
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: fleet, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "fleet", MatchResources: matching(binding)}},
		}
	}
	webhook := func(selector string) []client.Object {
		return []client.Object{&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "fleet"},
			Webhooks:   []admissionv1.ValidatingWebhook{{Name: "check.example.com", NamespaceSelector: new(selects(selector))}},
		}}
	}
	changing := func(policy, binding string) []client.Object {
		return []client.Object{
			&admissionv1.MutatingAdmissionPolicy{ObjectMeta: fleet, Spec: admissionv1.MutatingAdmissionPolicySpec{MatchConstraints: matching(policy)}},
			&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: fleet, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "fleet", MatchResources: matching(binding)}},
		}
	}
	kyverno := func(action string) []client.Object {
		match := map[string]any{"any": []any{map[string]any{"resources": map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"stage": "test"}}}}}}
		return []client.Object{object("kyverno.io/v1", "ClusterPolicy", "", "fleet", map[string]any{"spec": map[string]any{
			"rules": []any{map[string]any{"match": match, "validate": map[string]any{"failureAction": action}}},
		}})}
	}
	network := func(subject map[string]any) []client.Object {
		return []client.Object{object("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", "", "apart", map[string]any{"spec": map[string]any{"tier": "Admin", "subject": subject}})}
	}
	labelled := map[string]any{"matchLabels": map[string]any{"stage": "test"}}
	without := map[string]any{"matchExpressions": []any{map[string]any{"key": "free", "operator": "DoesNotExist"}}}
	for _, tc := range []struct {
		reason, accepted string
		objects          []client.Object
		want             Outcome
		words            string
	}{
		{"no label can be changed", "", tenant(labelled), Stopped, "tenure-namespaces"},
		{"the label can be removed", `"stage":null`, tenant(labelled), GotThrough, "leave the quota tests of its Tenant"},
		{"a label can be added", `"free":"tenure-attack-i6"`, tenant(without), GotThrough, "by the label free"},
		{"owners choose the label", `"stage":null`, tenant(labelled, "sta*"), Stopped, "tenure-namespaces"},
		{"owners choose another label", `"stage":null`, tenant(labelled, "stag"), GotThrough, "leave the quota tests"},
		{"the quota selects other namespaces", `"stage":null`, tenant(map[string]any{"matchLabels": map[string]any{"stage": "other"}}), Stopped, "tenure-namespaces"},
		{"a policy selects by the label", `"stage":null`, bound("stage", ""), GotThrough, "leave the ValidatingAdmissionPolicy fleet"},
		{"a binding selects by the label", `"stage":null`, bound("", "stage in (test, prod)"), GotThrough, "leave the ValidatingAdmissionPolicy fleet"},
		{"another label decides as well", `"free":"tenure-attack-i6"`, bound("stage", "!free"), GotThrough, "by the label free"},
		{"a policy without a binding", `"stage":null`, bound("stage", "")[:1], Stopped, "tenure-namespaces"},
		{"a policy leaves out a value", `"free":"yes"`, bound("free notin (yes)", ""), GotThrough, "by the label free"},
		{"a policy that owners choose", `"stage":null`, slices.Concat(bound("stage", ""), tenant(without, "stage")), Stopped, "tenure-namespaces"},
		{"a policy goes by the name", `"kubernetes.io/metadata.name":`, bound("kubernetes.io/metadata.name notin (kube-system)", ""), Stopped, "tenure-namespaces"},
		{"a webhook selects by the label", `"stage":null`, webhook("stage=test"), GotThrough, "leave the webhook check.example.com"},
		{"a policy that changes objects selects by the label", `"stage":null`, changing("stage", ""), GotThrough, "leave the MutatingAdmissionPolicy fleet"},
		{"a binding of a policy that changes objects selects by the label", `"stage":null`, changing("", "stage"), GotThrough, "leave the MutatingAdmissionPolicy fleet"},
		{"a policy of Kyverno selects by the label", `"stage":null`, kyverno("Enforce"), GotThrough, "leave the Kyverno policy fleet"},
		{"a policy of Kyverno only reports", `"stage":null`, kyverno("Audit"), Stopped, "tenure-namespaces"},
		{"a ClusterNetworkPolicy selects by the label", `"stage":null`, network(map[string]any{"namespaces": labelled}), GotThrough, "leave the ClusterNetworkPolicy apart"},
		{"a ClusterNetworkPolicy is about Pods", `"stage":null`, network(map[string]any{"pods": map[string]any{"namespaceSelector": labelled}}), GotThrough, "leave the ClusterNetworkPolicy apart"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			e := changingLabels(tc.accepted, tc.objects...)
			f := relabelling((*Scenario).leaves, request{what: "switch off Pod Security", aimed: patchNamespace("", `{"metadata":{"labels":{"x":"y"}}}`)})(t.Context(), e)
			if said := f.Control + f.Evidence + f.Reason; f.Outcome != tc.want || !strings.Contains(said, tc.words) {
				t.Errorf("got %+v, want %s with %q", f, tc.want, tc.words)
			}
		})
	}
}

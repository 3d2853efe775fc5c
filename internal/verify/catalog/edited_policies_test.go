package catalog

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestEditsParameters checks that I17 tries to change the parameters that a policy reads for the tenant,
// and not those of a policy that selects other namespaces.
func TestEditsParameters(t *testing.T) {
	t.Parallel()
	policy := func(name string) *admissionv1.ValidatingAdmissionPolicy {
		return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{ParamKind: &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}}}
	}
	binding := func(name, team string) *admissionv1.ValidatingAdmissionPolicyBinding {
		return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ParamRef: &admissionv1.ParamRef{Name: "sources"},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}},
		}}
	}
	param := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "sources"}}
	e := newFakeEnv(interceptor.Funcs{}, policy("ours"), policy("theirs"), binding("ours", "ours"), binding("theirs", "theirs"), param)
	e.namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"team": "ours"}}}}
	all, err := e.editsParameters(t.Context())
	if err != nil || len(all) != 1 || all[0].what != "change ConfigMap team/sources, which policy ours reads" {
		t.Errorf("got %v, %v, want one request about the policy ours", all, err)
	}
}

package catalog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestAnswersCalls checks that I17 tries to answer in the place of each Service of the tenant's namespaces
// that the API server calls, and of no other.
func TestAnswersCalls(t *testing.T) {
	t.Parallel()
	calls := func(namespace, name string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace, Name: name, Port: new(int32(8443))}}
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "things.example.com"},
		"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": map[string]any{
			"service": map[string]any{"namespace": "team", "name": "gone", "port": int64(443)},
		}}}},
	}}
	local := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.apps"}, "spec": map[string]any{},
	}}
	e := newFakeEnv(interceptor.Funcs{}, crd, local,
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "checks"}, Webhooks: []admissionv1.ValidatingWebhook{
			{ClientConfig: calls("flux-system", "platform")}, {ClientConfig: calls("team", "hook")}, {ClientConfig: calls("team", "hook")},
		}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sets"}, Webhooks: []admissionv1.MutatingWebhook{{ClientConfig: calls("other", "hook")}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "hook"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "hook"}}},
	)
	var err error
	if e.called, err = calledServices(t.Context(), e.Admin); err != nil {
		t.Fatal(err)
	}
	all, err := e.answersCalls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range all {
		got = append(got, r.what)
		if err := r.aimed(t.Context(), e); err != nil {
			t.Errorf("%s: %v, but the tenant may", r.what, err)
		}
	}
	want := []string{
		"change Service team/hook, which the API server calls for ValidatingWebhookConfiguration checks",
		"run a Pod that answers as Service team/hook, which the API server calls for ValidatingWebhookConfiguration checks",
		"make Service team/gone, which the API server calls for CustomResourceDefinition things.example.com",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

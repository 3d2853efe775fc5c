package catalog

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/admission"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestCallsTheWebhook calls webhooks that believe every caller, or only those with the
// secret path.
func TestCallsTheWebhook(t *testing.T) {
	t.Parallel()
	const secret = admission.WebhookPath + "/secret"
	configuration := func(service *admissionregistrationv1.ServiceReference) client.Object {
		return &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: admission.WebhookName},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "w", ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: service}}},
		}
	}
	there := configuration(&admissionregistrationv1.ServiceReference{Namespace: "flux-system", Name: "tenure-webhook", Port: new(int32(443)), Path: new(secret)})
	const answer = `{"response":{"uid":"x","allowed":false}}`
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		answers func(path string) (int, string)
		want    Outcome
		control string
	}{
		"none":     {"nothing counts namespaces here", nil, nil, Stopped, notInstalled},
		"address":  {"a webhook outside of the cluster is not the tenant's to reach", []client.Object{configuration(nil)}, nil, Stopped, notInstalled},
		"secret":   {"only the API server knows the path", []client.Object{there}, func(path string) (int, string) { return map[bool]int{true: 200, false: 404}[path == secret], answer }, Stopped, webhookCallers},
		"believes": {"every caller is answered", []client.Object{there}, func(string) (int, string) { return 200, answer }, GotThrough, ""},
		"dead":     {"a webhook that answers nothing proves nothing", []client.Object{there}, func(string) (int, string) { return 404, "" }, NotProven, ""},
		"busy":     {"an error is no refusal", []client.Object{there}, func(string) (int, string) { return 503, "" }, NotProven, ""},
		"other":    {"what answers is no webhook", []client.Object{there}, func(string) (int, string) { return 200, "{}" }, NotProven, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{}, tc.objects...)
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasPrefix(r.URL.Path, "/") || tc.answers == nil {
					http.NotFound(w, r)
					return
				}
				code, body := tc.answers(r.URL.Path)
				w.WriteHeader(code)
				_, _ = w.Write([]byte(body))
			}))
			t.Cleanup(s.Close)
			e.outside = street{s}
			if got := callsTheWebhook(t.Context(), e); got.Outcome != tc.want || got.Control != tc.control {
				t.Errorf("%s: %+v", tc.reason, got)
			}
		})
	}
}

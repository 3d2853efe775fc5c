package capsule

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TestAuditHandlerSetsMetadata checks for which requests the webhook sets the default and the managed
// metadata of rules.
func TestAuditHandlerSetsMetadata(t *testing.T) {
	t.Parallel()
	rule := v1beta2.Unknown{}
	rule.Raw = []byte(`{"enforce":{"metadata":[{"kinds":["ConfigMap"],"labels":{"a":{"managed":"b"},"c":{"default":"d"}}}]}}`)
	status := &v1beta2.RuleStatus{ObjectMeta: metav1.ObjectMeta{Namespace: "oil-a", Name: v1beta2.RulesName}}
	status.Status.Rules = []v1beta2.Unknown{rule}
	h := &AuditHandler{Client: fake.NewClientBuilder().WithScheme(scheme()).WithObjects(status).Build(), Events: &events.FakeRecorder{}}
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"mine"}}}`
	for _, tc := range []struct {
		reason      string
		operation   admissionv1.Operation
		subresource string
		want        map[string]any
	}{
		{"a new object", admissionv1.Create, "", map[string]any{"/metadata/labels/a": "b", "/metadata/labels/c": "d"}},
		{"an update", admissionv1.Update, "", map[string]any{"/metadata/labels/a": "b"}},
		{"another subresource", admissionv1.Update, "ephemeralcontainers", map[string]any{}},
	} {
		request := admission.Request{}
		request.Namespace, request.Operation, request.SubResource, request.Object.Raw = "oil-a", tc.operation, tc.subresource, []byte(object)
		if tc.operation == admissionv1.Update {
			request.OldObject.Raw = []byte(object)
		}
		response := h.Handle(t.Context(), request)
		got := map[string]any{}
		for _, p := range response.Patches {
			got[p.Path] = p.Value
		}
		if !response.Allowed || fmt.Sprint(got) != fmt.Sprint(tc.want) {
			text, _ := json.Marshal(response)
			t.Errorf("%s: got %s, want %v", tc.reason, text, tc.want)
		}
	}
}

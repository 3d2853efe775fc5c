package flux

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestFailedGenerators checks that a generator that failed is reported with its message, and no other one.
func TestFailedGenerators(t *testing.T) {
	t.Parallel()
	generator := func(name, status string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Ready", "status": status, "reason": "ValidationFailed", "message": name + " says so", "lastTransitionTime": "2026-01-01T00:00:00Z"},
		}}}}
		u.SetGroupVersionKind(generatorKind)
		u.SetNamespace("flux-system")
		u.SetName(name)
		return u
	}
	c := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(generator("broken", "False"), generator("fine", "True"), generator("new", "Unknown")).Build()
	var got []string
	for _, f := range FailedGenerators(t.Context(), c) {
		got = append(got, f.Row.Ref().String()+": "+f.Reason)
	}
	if diff := cmp.Diff([]string{"ArtifactGenerator/flux-system/broken: broken says so"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

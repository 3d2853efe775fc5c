package node

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStatusPatchTouchesNothingElse(t *testing.T) {
	t.Parallel()
	raw, err := statusPatch(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Finalizers: []string{"old"}, Labels: map[string]string{"old": "x"}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"metadata": map[string]any{"uid": "u"},
		"status":   map[string]any{"phase": "Running", "reason": nil, "message": nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the identifier guards, labels and finalizers stay, old reasons go: -want +got\n%s", diff)
	}
}

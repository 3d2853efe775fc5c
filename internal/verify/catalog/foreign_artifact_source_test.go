package catalog

import (
	"context"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestGeneratorAnswer checks what S2 says of the answers of source-watcher.
func TestGeneratorAnswer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, ready, message string
		want                   Outcome
		text                   string
	}{
		{"it copied the source", "True", "reconciliation succeeded, generated 1 artifact(s)", GotThrough, "GitRepository/flux-system/flux-system"},
		{"it looked for the source", "False", `GitRepository.source.toolkit.fluxcd.io "a" not found`, GotThrough, "opened"},
		{"the flag refuses the source", "False", "cross-namespace reference to source GitRepository/flux-system/flux-system is not allowed", Stopped, "flag --no-cross-namespace-refs"},
		{"nobody knows the answer", "False", "no space left on device", NotProven, "no space left"},
		{"there was no answer", "", "", NotProven, "neither a success"},
	} {
		f := readiness{ready: metav1.ConditionStatus(tc.ready), message: tc.message}.ofGenerator(flux.Ref{Kind: flux.GitRepository, Namespace: "flux-system", Name: "flux-system"})
		if said := f.Control + f.Evidence + f.Reason; f.Outcome != tc.want || !strings.Contains(said, tc.text) {
			t.Errorf("%s: got %s (%s), want %s with %q", tc.reason, f.Outcome, said, tc.want, tc.text)
		}
	}
}

// TestForeignArtifactSourceWithoutController checks that S2 is not proven if the API server accepts the generator and
// source-watcher does not run.
func TestForeignArtifactSourceWithoutController(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return nil }}, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "source-watcher"},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{ContainerID: "simulated://1", Image: "registry.example.com/source-watcher:v2.0.0", Ready: true},
		}},
	})
	if f := foreignArtifactSource(t.Context(), e); f.Outcome != NotProven || !strings.HasPrefix(f.Reason, ControllerSimulated) || !strings.Contains(f.Reason, "source-watcher does not run here") {
		t.Errorf("got %+v, want a reason that source-watcher does not run", f)
	}
}

package catalog

import (
	"context"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster/node"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The report names the stand-in for source-watcher if it runs, and S2 does not say that nothing
// runs.
func TestStandIn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, container, want string
		named                   bool
	}{
		{"the stand-in runs", node.ProcessScheme + "1", "only a stand-in for source-watcher runs here", true},
		{"the Pod is simulated", "simulated://1", "source-watcher does not run here", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return nil }}, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "source-watcher"},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
					{ContainerID: tc.container, Image: "ghcr.io/fluxcd/source-watcher:v2.0.0", Ready: true},
				}},
			})
			names, err := standIns(t.Context(), e.Admin)
			if err != nil || (len(names) == 1) != tc.named {
				t.Errorf("got %q and %v as the stand-ins", names, err)
			}
			generator := func(e *Scenario) *unstructured.Unstructured {
				return object("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator", e.Namespace, "any", nil)
			}
			if f := simulated(sourceWatcher, generator, generator)(t.Context(), e); f.Outcome != NotProven || !strings.HasPrefix(f.Reason, ControllerSimulated) || !strings.Contains(f.Reason, tc.want) {
				t.Errorf("got %+v, want a reason with %q", f, tc.want)
			}
		})
	}
}

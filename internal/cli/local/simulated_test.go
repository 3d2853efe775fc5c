package local

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestSimulated checks that a controller whose image the local cluster does not know is named once.
func TestSimulated(t *testing.T) {
	t.Parallel()
	pod := func(namespace, name, app, image, id string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
			Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Image: image, ContainerID: id}}},
		}
	}
	kube := fake.NewClientBuilder().WithObjects(
		pod("flux-system", "a", "tenure-manager", "example.com/mgr:v1", "simulated://1/manager"),
		pod("flux-system", "b", "tenure-manager", "example.com/mgr:v1", "simulated://2/manager"),
		pod("flux-system", "c", "tenure-proxy", "example.com/tenure-server:v1", "process://3"),
		pod("flux-system", "d", "web", "example.com/web:v1", "simulated://4/web"),
		pod("apps", "e", "source-controller", "example.com/mirror:v1", "simulated://5/manager"),
	).Build()
	want := []string{"tenure-manager: its Pods are simulated, so nothing does its work: the local cluster runs the program only for an image named tenure-server, and not for example.com/mgr:v1"}
	if diff := cmp.Diff(want, simulated(t.Context(), kube, "flux-system")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

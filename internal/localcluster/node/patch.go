package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// patchingPods makes virtual-kubelet patch the status of Pods instead of replacing
// it. A replacement also writes the labels, annotations and finalizers of a copy
// that may be old, and the conditions of other writers. It could add a finalizer
// again that the Job controller has removed.
type patchingPods struct {
	typedcorev1.PodsGetter
	log *slog.Logger
}

func (g patchingPods) Pods(namespace string) typedcorev1.PodInterface {
	return patchingPodClient{g.PodsGetter.Pods(namespace), g.log}
}

type patchingPodClient struct {
	typedcorev1.PodInterface
	log *slog.Logger
}

// UpdateStatus patches the status. It returns no error for a Pod that was deleted or
// replaced by a Pod of the same name, whose status is no longer needed.
func (c patchingPodClient) UpdateStatus(ctx context.Context, pod *corev1.Pod, _ metav1.UpdateOptions) (*corev1.Pod, error) {
	patch, err := statusPatch(pod)
	if err != nil {
		return nil, err
	}
	updated, err := c.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return pod, nil
	}
	if err != nil {
		c.log.Warn("cannot write the status of a Pod; it is tried again", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
		return nil, fmt.Errorf("cannot patch the status of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return updated, nil
}

// statusPatch returns a strategic merge patch for the status of the Pod with this
// UID.
func statusPatch(pod *corev1.Pod) ([]byte, error) {
	raw, err := json.Marshal(pod.Status)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the status of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	status := map[string]any{}
	if err := json.Unmarshal(raw, &status); err != nil {
		return nil, fmt.Errorf("cannot encode the status of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	// Clear empty fields, which may have been set before.
	for _, field := range []string{"reason", "message"} {
		if _, set := status[field]; !set {
			status[field] = nil
		}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   status,
	})
}

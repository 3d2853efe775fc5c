package catalog

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/localcluster/node"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// processes are the Pods with a container that runs as a process of this machine. All other Pods are
// simulated.
type processes []corev1.Pod

func findProcesses(ctx context.Context, admin client.Reader) (processes, error) {
	var pods corev1.PodList
	if err := admin.List(ctx, &pods); err != nil {
		return nil, fmt.Errorf("cannot see which Pods run: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(pod.Status.ContainerStatuses, isProcess)
	}), nil
}

func isProcess(status corev1.ContainerStatus) bool {
	return strings.HasPrefix(status.ContainerID, node.ProcessScheme) && status.Ready
}

// run reports whether a process has an image with this name.
func (p processes) run(image string) bool {
	return slices.ContainsFunc(p, func(pod corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
			name, _, _ := strings.Cut(path.Base(status.Image), ":")
			return isProcess(status) && name == image
		})
	})
}

// services returns the Services that select a process.
func (p processes) services(ctx context.Context, admin client.Reader) (map[client.ObjectKey]bool, error) {
	var services corev1.ServiceList
	if err := admin.List(ctx, &services); err != nil {
		return nil, fmt.Errorf("cannot see which Services lead to a process: %w", err)
	}
	found := map[client.ObjectKey]bool{}
	for _, service := range services.Items {
		if len(service.Spec.Selector) == 0 {
			continue
		}
		selector := labels.SelectorFromSet(service.Spec.Selector)
		found[client.ObjectKeyFromObject(&service)] = slices.ContainsFunc(p, func(pod corev1.Pod) bool {
			return pod.Namespace == service.Namespace && selector.Matches(labels.Set(pod.Labels))
		})
	}
	return found, nil
}

package local

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/localcluster"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// controllers are the controllers that run as processes, by the label app of their Pods, each with the
// name that its image must have.
var controllers = map[string]string{
	"tenure-manager": "tenure-server", "tenure-proxy": "tenure-server",
	"source-controller": "source-controller", "kustomize-controller": "kustomize-controller",
	"helm-controller": "helm-controller", "notification-controller": "notification-controller",
	"source-watcher": "source-watcher",
}

// Simulated returns a sentence for each controller of the platform that does not run, because its Pods
// have an image that the local cluster does not know: the Pods seem to run, and do nothing. It returns
// none if the Pods cannot be read.
func Simulated(ctx context.Context, cluster *localcluster.Cluster) []string {
	kube, err := client.New(cluster.REST, client.Options{})
	if err != nil {
		return nil
	}
	return simulated(ctx, kube, cluster.Fleet.FluxNamespace())
}

func simulated(ctx context.Context, kube client.Reader, namespace string) []string {
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil
	}
	var found []string
	for _, pod := range pods.Items {
		app := pod.Labels["app"]
		image, known := controllers[app]
		for _, status := range pod.Status.ContainerStatuses {
			if known && strings.HasPrefix(status.ContainerID, "simulated://") {
				found = append(found, fmt.Sprintf("%s: its Pods are simulated, so nothing does its work: the local cluster runs the program only for an image named %s, and not for %s", app, image, status.Image))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

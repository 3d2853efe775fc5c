package cloud

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	informerv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// pendingPods returns an informer about the Pods that have no node.
func pendingPods(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return informerv1.NewFilteredPodInformer(client, metav1.NamespaceAll, resync, indexers, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", "").String()
	})
}

// placePod binds a Pod to the node if the scheduler finds that the node is not one of those that the Pod
// wants, by its labels or beside other Pods: the node stands for all nodes of the real cluster.
func (c *cloud) placePod(ctx context.Context, namespace, name string) error {
	pod, err := c.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the Pod: %w", err)
	}
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || !slices.ContainsFunc(pod.Status.Conditions, otherNode) {
		return nil
	}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("cannot list the nodes: %w", err)
	}
	if len(nodes.Items) == 0 {
		return nil
	}
	err = c.client.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodes.Items[0].Name},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot bind the Pod to the node: %w", err)
	}
	return nil
}

// otherNode reports whether the scheduler says that a Pod wants another node. Its messages about
// selectors, affinity and spreading have this form; others are about volumes and resources.
func otherNode(c corev1.PodCondition) bool {
	return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "didn't match")
}

package node

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
)

// provider implements the interfaces of virtual-kubelet. The content of a Pod causes
// no error: the status of a Pod that cannot run contains the reason, as on any node.
type provider struct{ n *Node }

func key(namespace, name string) string { return namespace + "/" + name }

func (n *Node) find(namespace, name string) *podState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[key(namespace, name)]
}

// NotifyPods sets the function that receives the status of Pods.
func (v provider) NotifyPods(_ context.Context, notify func(*corev1.Pod)) { v.n.notify = notify }

// CreatePod starts a Pod. It stops a replaced Pod of the same name. It returns an error if the
// node has no free address.
func (v provider) CreatePod(_ context.Context, pod *corev1.Pod) error {
	n := v.n
	n.mu.Lock()
	old := n.pods[key(pod.Namespace, pod.Name)]
	if old != nil && old.uid == pod.UID {
		n.mu.Unlock()
		return nil
	}
	if old != nil {
		n.forgetLocked(old)
	}
	ip, err := n.addresses.take(pod.Status.PodIP)
	if err != nil {
		n.mu.Unlock()
		return fmt.Errorf("cannot give the Pod an address: %w", err)
	}
	p := newPodState(n, pod, ip)
	n.pods[key(pod.Namespace, pod.Name)] = p
	n.byIP[ip] = p
	n.mu.Unlock()
	if old != nil {
		n.running.Go(old.discard)
	}
	p.start()
	return nil
}

// UpdatePod sets new labels and annotations. If containers have changed, it restarts the Pod's
// processes. Its error is that of CreatePod.
func (v provider) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	p := v.n.find(pod.Namespace, pod.Name)
	if p == nil || p.uid != pod.UID {
		return v.CreatePod(ctx, pod)
	}
	p.update(pod)
	return nil
}

// DeletePod starts to end a Pod and returns at once. The node removes the Pod from the API when
// its processes have ended; virtual-kubelet would wait for the whole grace period. It returns a
// NotFound error for a Pod that the node does not run.
func (v provider) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	p := v.n.find(pod.Namespace, pod.Name)
	if p != nil && p.uid == pod.UID {
		p.end(pod)
		return nil
	}
	if pod.DeletionTimestamp != nil {
		if err := v.n.remove(ctx, pod); err != nil {
			return fmt.Errorf("cannot remove Pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return errdefs.NotFoundf("Pod %s/%s does not run here", pod.Namespace, pod.Name)
}

// GetPod returns a Pod of this node. It returns a NotFound error for other Pods, and for a Pod
// that was replaced by another one of the same name: virtual-kubelet does not compare UIDs and
// would mistake it for the new Pod.
func (v provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	p := v.n.find(namespace, name)
	if p == nil {
		return nil, errdefs.NotFoundf("Pod %s/%s does not run here", namespace, name)
	}
	if current, err := v.n.lister.Pods(namespace).Get(name); err == nil && current.UID != p.uid {
		return nil, errdefs.NotFoundf("Pod %s/%s does not run here yet", namespace, name)
	}
	return p.snapshot(), nil
}

// GetPodStatus returns the status of a Pod of this node. It returns the error of GetPod.
func (v provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := v.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns all Pods of this node. Its error is always nil.
func (v provider) GetPods(context.Context) ([]*corev1.Pod, error) {
	v.n.mu.Lock()
	defer v.n.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(v.n.pods))
	for _, p := range v.n.pods {
		pods = append(pods, p.snapshot())
	}
	return pods, nil
}

// forget removes a Pod from the tables, which makes its name and address available
// again. It does nothing for a Pod that was removed before.
func (n *Node) forget(p *podState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgetLocked(p)
}

func (n *Node) forgetLocked(p *podState) {
	if k := key(p.namespace, p.name); n.pods[k] == p {
		delete(n.pods, k)
	}
	if n.byIP[p.ip] == p {
		delete(n.byIP, p.ip)
		n.addresses.release(p.ip)
	}
}

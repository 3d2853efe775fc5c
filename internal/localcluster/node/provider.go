package node

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
)

// provider is what virtual-kubelet calls. It never fails for what is in a Pod:
// a Pod that cannot run says so in its status, as on any node.
type provider struct{ n *Node }

func key(namespace, name string) string { return namespace + "/" + name }

func (n *Node) find(namespace, name string) *podState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[key(namespace, name)]
}

// NotifyPods takes the function that reports a Pod's status.
func (v provider) NotifyPods(_ context.Context, notify func(*corev1.Pod)) { v.n.notify = notify }

// CreatePod starts a Pod. One of the same name that has been replaced is
// stopped.
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

// UpdatePod takes over new labels and annotations. When containers changed,
// the Pod's processes are started anew.
func (v provider) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	p := v.n.find(pod.Namespace, pod.Name)
	if p == nil || p.uid != pod.UID {
		return v.CreatePod(ctx, pod)
	}
	p.update(pod)
	return nil
}

// DeletePod begins to end a Pod and returns at once. When its processes have
// ended the Pod is removed from the API, which virtual-kubelet would do only
// after the whole grace period.
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

// GetPod returns a Pod that runs here. One that has been replaced by another
// of the same name is not found: virtual-kubelet does not compare identifiers
// and would take it for the new one.
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

// GetPodStatus returns the status of a Pod that runs here.
func (v provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := v.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns all Pods that run here.
func (v provider) GetPods(context.Context) ([]*corev1.Pod, error) {
	v.n.mu.Lock()
	defer v.n.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(v.n.pods))
	for _, p := range v.n.pods {
		pods = append(pods, p.snapshot())
	}
	return pods, nil
}

// forget drops a Pod from the tables, so that a new one of the same name and
// address can come. A Pod that has been forgotten before is left alone.
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

package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestUpdatedPodKeepsItsAddress(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	v := provider{n.Node}
	pod := podNamed("platform", "p")
	if err := v.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	before := n.await(t, "p", "the process runs", isReady)
	host, err := n.HostAddress(before.Status.PodIP, 8080)
	if err != nil {
		t.Fatal(err)
	}
	labelled := pod.DeepCopy()
	labelled.Labels = map[string]string{"new": "label"}
	if err := v.UpdatePod(t.Context(), labelled); err != nil {
		t.Fatal(err)
	}
	if same, err := n.HostAddress(before.Status.PodIP, 8080); err != nil || same != host {
		t.Errorf("a new label must not restart the process: got %s, %v, want %s", same, err, host)
	}
	upgraded := labelled.DeepCopy()
	upgraded.Spec.Containers[0].Image = "example.com/prog:v2"
	if err := v.UpdatePod(t.Context(), upgraded); err != nil {
		t.Fatal(err)
	}
	after := n.await(t, "p", "a new image restarts the process", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		return isReady(p) && s.RestartCount == 1 && s.Image == "example.com/prog:v2"
	})
	if after.Status.PodIP != before.Status.PodIP {
		t.Errorf("got address %s, want %s as before", after.Status.PodIP, before.Status.PodIP)
	}
}

func TestReplacedPodOfTheSameName(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	v := provider{n.Node}
	if err := v.CreatePod(t.Context(), podNamed("platform", "p")); err != nil {
		t.Fatal(err)
	}
	n.await(t, "p", "the first one runs", isReady)
	second := podNamed("platform", "p")
	second.UID = "another"
	if err := v.CreatePod(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	n.await(t, "p", "the second one runs", func(p *corev1.Pod) bool { return isReady(p) && p.UID == "another" })
	if got, err := v.GetPod(t.Context(), "platform", "p"); err != nil || got.UID != "another" {
		t.Errorf("got Pod %v, %v, want the second one", got, err)
	}
}

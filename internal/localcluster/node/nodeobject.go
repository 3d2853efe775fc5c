package node

import (
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxPods is the maximum number of Pods on the node.
const maxPods = "5000"

// capacity returns the node's resources, which are large: simulated Pods use none of
// them.
func capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("10000"),
		corev1.ResourceMemory:           resource.MustParse("64Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("64Ti"),
		corev1.ResourcePods:             resource.MustParse(maxPods),
	}
}

// nodeObject returns the Node to register. External is the address of its node ports, or "".
func nodeObject(name, version string, port int, external string) *corev1.Node {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP}}
	if external != "" {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: external})
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelOSStable:       "linux",
				corev1.LabelArchStable:     runtime.GOARCH,
				corev1.LabelHostname:       name,
				corev1.LabelTopologyZone:   "local",
				corev1.LabelTopologyRegion: "local",
			},
		},
		Status: corev1.NodeStatus{
			Capacity:        capacity(),
			Allocatable:     capacity(),
			Addresses:       addresses,
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: runtime.GOARCH, OperatingSystem: "linux", OSImage: "tenure local cluster",
				ContainerRuntimeVersion: "tenure://1", KubeletVersion: version,
			},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "the node of the local cluster is ready"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "memory is not accounted for"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "disk space is not accounted for"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "processes are not accounted for"),
				condition(corev1.NodeNetworkUnavailable, corev1.ConditionFalse, "RouteCreated", "Pods have addresses without routes"),
			},
		},
	}
}

package olderobjects

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// request returns the object as a person would create it: without the fields that the API server and
// controllers set. Finalizers are among them, since most are a controller's.
func request(o *unstructured.Unstructured) *unstructured.Unstructured {
	r := o.DeepCopy()
	delete(r.Object, "metadata")
	delete(r.Object, "status")
	r.SetNamespace(o.GetNamespace())
	r.SetName(o.GetName())
	r.SetLabels(o.GetLabels())
	r.SetAnnotations(o.GetAnnotations())
	switch r.GroupVersionKind().GroupKind().String() {
	case "Pod":
		// The scheduler sets the node, and nobody can create a Pod with ephemeral containers.
		remove(r, "spec", "nodeName")
		remove(r, "spec", "ephemeralContainers")
	case "Service":
		asNewService(r)
	case "PersistentVolumeClaim":
		if r.GetAnnotations()["pv.kubernetes.io/bound-by-controller"] == "yes" {
			remove(r, "spec", "volumeName")
		}
	case "Job.batch":
		asNewJob(r)
	}
	return r
}

// asNewService removes the addresses and ports of a Service: they are in use, by the Service.
func asNewService(r *unstructured.Unstructured) {
	if ip, _, _ := unstructured.NestedString(r.Object, "spec", "clusterIP"); ip != "None" {
		remove(r, "spec", "clusterIP")
		remove(r, "spec", "clusterIPs")
	}
	remove(r, "spec", "healthCheckNodePort")
	ports, _, _ := unstructured.NestedSlice(r.Object, "spec", "ports")
	for _, port := range ports {
		if fields, ok := port.(map[string]any); ok {
			delete(fields, "nodePort")
		}
	}
	if len(ports) > 0 {
		_ = unstructured.SetNestedSlice(r.Object, ports, "spec", "ports")
	}
}

// asNewJob removes the selector of a Job and its labels, unless a person chose them.
func asNewJob(r *unstructured.Unstructured) {
	if manual, _, _ := unstructured.NestedBool(r.Object, "spec", "manualSelector"); manual {
		return
	}
	remove(r, "spec", "selector")
	for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"} {
		remove(r, "metadata", "labels", label)
		remove(r, "spec", "template", "metadata", "labels", label)
	}
}

func remove(o *unstructured.Unstructured, fields ...string) {
	unstructured.RemoveNestedField(o.Object, fields...)
}

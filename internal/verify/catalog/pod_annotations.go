package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addPodAnnotations(register func(...Attack)) {
	own := creating(hardenedPod("w14", nil))
	var pods []func(*Scenario) *unstructured.Unstructured
	var all []request
	for _, reach := range []struct {
		what, annotation string
		value            func(*Scenario) string
	}{
		{"join a network of another namespace", "k8s.v1.cni.cncf.io/networks", victimsNetwork},
		{"take an address of its choice", "cni.projectcalico.org/ipAddrs", func(*Scenario) string { return `["198.51.100.7"]` }},
		{"take any role in the cloud that the node may give", "iam.amazonaws.com/role", func(*Scenario) string { return "canary" }},
	} {
		annotated := annotatedPod(reach.annotation, reach.value, nil)
		pods = append(pods, annotated)
		all = append(all, request{what: reach.what, aimed: creating(annotated), own: own})
	}
	podsAlsoByGit(register, annotatedPod("k8s.v1.cni.cncf.io/networks", victimsNetwork, map[string]any{"schedulingGates": gates()}), Attack{
		ID: "W14", Via: API, Owners: OwnersWithin,
		Kinds:    everyPod,
		Slow:     true,
		Title:    "joins networks of others, or takes addresses and cloud roles, with annotations of a Pod",
		Controls: []string{"policy on the annotations of Pods"},
		Fix:      Fix{Advice: "refuse annotations of Pods that choose an address, a network of another namespace or a cloud role with a ValidatingAdmissionPolicy on Pods and their templates, and restrict them in the network plugin, such as with namespaceIsolation of Multus"},
		Run:      runsPods(pods, all...),
	})
}

// victimsNetwork is a network in the namespace of another tenant.
func victimsNetwork(e *Scenario) string { return e.Victim.Namespace + "/canary" }

// annotatedPod makes a harmless Pod with one annotation and the fields of its spec.
func annotatedPod(annotation string, value func(*Scenario) string, fields map[string]any) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		u := hardenedPod("w14", fields)(e)
		u.SetAnnotations(map[string]string{annotation: value(e)})
		return u
	}
}

package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addNodeTakeover(register func(...Attack)) {
	privileged := pod(map[string]any{}, map[string]any{"privileged": true})
	onNode := pod(map[string]any{"hostNetwork": true, "hostPID": true}, nil)
	mounting := pod(map[string]any{"volumes": []any{map[string]any{"name": "host", "hostPath": map[string]any{"path": "/"}}}}, nil)
	register(Attack{
		ID: "W3", Via: API, Owners: OwnersWithin,
		Title:      "runs a Pod that owns its node",
		Controls:   []string{"Pod Security admission at baseline or restricted"},
		References: []string{"MTB CPI-3 to 6", "MTB HI"},
		Fix:        Fix{Advice: "label the tenant's namespaces pod-security.kubernetes.io/enforce: restricted (or baseline)", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}},
		Run: runsPods([]func(*Scenario) *unstructured.Unstructured{privileged, onNode, mounting},
			request{what: "run a privileged container", aimed: creating(privileged)},
			request{what: "use the node's network and processes", aimed: creating(onNode)},
			request{what: "mount the node's file system", aimed: creating(mounting)},
		),
	})
}

// pod makes a Pod that a tenant's account may not run.
func pod(spec, securityContext map[string]any) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		container := e.container()
		if securityContext != nil {
			container["securityContext"] = securityContext
		}
		full := map[string]any{"containers": []any{container}}
		for key, value := range spec {
			full[key] = value
		}
		return object("v1", "Pod", e.Namespace, name("w3"), map[string]any{"spec": full})
	}
}

package catalog

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addNodeTakeover(register func(...Attack)) {
	privileged := pod(map[string]any{}, map[string]any{"privileged": true})
	first := func(e *Scenario) *unstructured.Unstructured {
		u := pod(nil, harmlessContainer())(e)
		container := e.container()
		container["name"], container["securityContext"] = "first", map[string]any{"privileged": true}
		_ = unstructured.SetNestedSlice(u.Object, []any{container}, "spec", "initContainers")
		return u
	}
	// In all other fields, these comply with every level of Pod Security: a policy that looks at the other fields alone
	// would refuse a simple Pod, but no attacker.
	onNode := hardenedPod("w3", map[string]any{"hostNetwork": true, "hostPID": true})
	mounting := hardenedPod("w3", map[string]any{"volumes": []any{map[string]any{"name": "host", "hostPath": map[string]any{"path": "/"}}}})
	own := creating(hardenedPod("w3-own", nil))
	podsAlsoByGit(register, func(e *Scenario) *unstructured.Unstructured { return takeovers[e.takeover](e) }, Attack{
		ID: "W3", Via: API, Owners: OwnersWithin,
		Kinds:      slices.Concat(everyPod, []string{"Pod/ephemeralcontainers"}),
		Slow:       true,
		Title:      "runs a Pod that can take over its node",
		Controls:   []string{"Pod Security admission at baseline or restricted"},
		References: []string{"MTB CPI-3 to 6", "MTB HI"},
		Fix:        Fix{Advice: "label the tenant's namespaces pod-security.kubernetes.io/enforce: restricted (or baseline)", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}},
		Run: runsPods([]func(*Scenario) *unstructured.Unstructured{privileged, first, onNode, mounting},
			request{what: "run a privileged container", aimed: creating(privileged), own: own},
			request{what: "run a privileged init container", aimed: creating(first), own: own},
			request{what: "use the node's network and processes", aimed: creating(onNode), own: own},
			request{what: "mount the node's file system", aimed: creating(mounting), own: own},
			request{what: "add a privileged container to a running Pod", aimed: debugging},
		),
	})
}

// takeovers are the Pods of which a commit of the tenant delivers one: see [Scenario.findTakeover]. They wait for no node.
var takeovers = []func(*Scenario) *unstructured.Unstructured{
	pod(map[string]any{"schedulingGates": gates()}, map[string]any{"privileged": true}),
	hardenedPod("w3", map[string]any{"schedulingGates": gates(), "hostNetwork": true, "hostPID": true}),
	hardenedPod("w3", map[string]any{"schedulingGates": gates(), "volumes": []any{map[string]any{"name": "host", "hostPath": map[string]any{"path": "/"}}}}),
}

// findTakeover returns the index of the first Pod of takeovers that the API server accepts from the tenant, and 0 if there
// is none: a policy may refuse privileged containers and admit the node's file system.
func (e *Scenario) findTakeover(ctx context.Context) int {
	return max(0, slices.IndexFunc(takeovers, func(pod func(*Scenario) *unstructured.Unstructured) bool {
		u := pod(e)
		if e.runsBy == nil {
			return e.applies(ctx, u) == nil
		}
		return e.applies(ctx, e.runsBy.idle(u)) == nil && e.creates(ctx, e.runsBy.controller, u) == nil
	}))
}

// pod returns a Pod that a tenant's account may not run.
func pod(spec, securityContext map[string]any) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		container := e.container()
		if securityContext != nil {
			container["securityContext"] = securityContext
		}
		full := map[string]any{"containers": []any{container}}
		e.keepLimits(full)
		for key, value := range spec {
			full[key] = value
		}
		return object("v1", "Pod", e.Namespace, name("w3"), map[string]any{"spec": full})
	}
}

// debugging adds a privileged ephemeral container to a Pod, in a dry run. An admin creates the Pod, but
// only if the tenant has the right to add such containers.
func debugging(ctx context.Context, e *Scenario) error {
	add := func(u *unstructured.Unstructured) error {
		u = u.DeepCopy()
		container := e.container()
		delete(container, "resources") // an ephemeral container must not have resources
		container["name"], container["securityContext"] = "debugger", map[string]any{"privileged": true}
		_ = unstructured.SetNestedSlice(u.Object, []any{container}, "spec", "ephemeralContainers")
		p := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, p); err != nil {
			return err
		}
		return e.As.SubResource("ephemeralcontainers").Update(ctx, p, client.DryRunAll)
	}
	u := hardenedPod("w3-debugged", map[string]any{"schedulingGates": gates()})(e)
	if err := add(u); !apierrors.IsNotFound(err) {
		return err
	}
	if err := e.Admin.Create(ctx, u); err != nil {
		// The error is not wrapped, so that it is not taken for a refusal of the attack.
		return fmt.Errorf("cannot make the Pod to add a container to: %s", firstLine(err.Error()))
	}
	defer e.remove(u)
	return add(u)
}

package catalog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The objects of attacks keep the limits of the tenant: a Pod that another limit refuses would
// say nothing about the attack.
func TestAttacksKeepLimits(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{},
		object(v1alpha1.GroupVersion.String(), "TenancyProfile", "", v1alpha1.ProfileName, map[string]any{"spec": map[string]any{"tenants": map[string]any{
			"workloads": map[string]any{"images": map[string]any{"registries": []any{"docker.io/**"}}},
		}}}),
		object(v1alpha1.GroupVersion.String(), "TenantParameters", "team", v1alpha1.ParametersName, map[string]any{"spec": map[string]any{"selectedClasses": map[string]any{"ingressClasses": []any{"public"}}, "tenants": map[string]any{
			"workloads": map[string]any{"images": map[string]any{"registries": []any{"*.registry.example.com/team/**"}, "pullPolicies": []any{"Always"}}, "nodes": map[string]any{"selector": map[string]any{"pool": "team"}}, "automountTokens": "Forbidden"},
			"network":   map[string]any{"hosts": map[string]any{"allowed": []any{"*.example.com"}}, "ingressClasses": map[string]any{"selector": map[string]any{}}},
			"storage":   map[string]any{"classes": map[string]any{"allowed": []any{"fast"}}},
		}}}),
	)
	e.Namespace = "team"
	if got := e.container()["image"]; got != "images.example.com/canary:1"+imageDigest {
		t.Errorf("without limits the image is %v", got)
	}
	e.readLimits(t.Context())
	hardened := hardenedPod("x", nil)(e)
	containers, _, _ := unstructured.NestedSlice(hardened.Object, "spec", "containers")
	container, ok := containers[0].(map[string]any)
	if !ok {
		t.Fatalf("the Pod is %v", hardened.Object)
	}
	for field, want := range map[string]any{"image": "canary.registry.example.com/team/canary:1" + imageDigest, "imagePullPolicy": "Always"} {
		if diff := cmp.Diff(want, container[field]); diff != "" {
			t.Errorf("%s of the container (-want +got):\n%s", field, diff)
		}
	}
	for _, pod := range []*unstructured.Unstructured{hardenedPod("x", nil)(e), pod(nil, nil)(e)} {
		pool, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeSelector", "pool")
		if token, set, _ := unstructured.NestedBool(pod.Object, "spec", "automountServiceAccountToken"); pool != "team" || token || !set {
			t.Errorf("the Pod has pool %q and a token: %v", pool, pod.Object)
		}
	}
	for what, got := range map[string][2]string{
		"host":               {firstOf(e.limits.Network.Hosts, "none"), "canary.example.com"},
		"class":              {firstClass(e.limits.Storage.Classes, nil), "fast"},
		"class by its label": {firstClass(e.limits.Network.IngressClasses, e.selectedClasses.IngressClasses), "public"},
		"unset":              {firstClass(e.limits.Network.GatewayClasses, nil), ""},
		"unset names":        {firstOf(e.limits.Network.Gateways, "none"), "none"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: got %s, want %s", what, got[0], got[1])
		}
	}
}

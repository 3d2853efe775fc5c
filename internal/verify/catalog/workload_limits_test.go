package catalog

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// The same steps aimed at the tenant's own use a host that the tenant has: a policy of the fleet may
// allow no other.
func TestHostInUse(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{},
		object("networking.k8s.io/v1", "Ingress", "team", "any", map[string]any{"spec": map[string]any{"rules": []any{map[string]any{"host": "*.example.com"}}}}),
		object("gateway.networking.k8s.io/v1", "HTTPRoute", "team", "site", map[string]any{"spec": hostnames("site.example.com")}),
		object("gateway.networking.k8s.io/v1", "HTTPRoute", "other", "site", map[string]any{"spec": hostnames("other.example.com")}))
	e.readLimits(t.Context())
	if e.hostInUse != "site.example.com" {
		t.Errorf("the host in use is %q", e.hostInUse)
	}
}

// TestOutsideOfLists checks that W11 tries values outside of a list only if the tenant has the list: a
// missing list allows everything.
func TestOutsideOfLists(t *testing.T) {
	t.Parallel()
	images := &v1alpha1.Images{Registries: []v1alpha1.ImagePattern{"registry.example.com/**"}}
	devices := &v1alpha1.AllowedClasses{AllowedNames: v1alpha1.AllowedNames{Allowed: []v1alpha1.ValuePattern{"gpu"}}}
	for name, tc := range map[string]struct {
		reason   string
		limits   v1alpha1.Workloads
		refused  string
		outcome  Outcome
		evidence string
	}{
		"nothing":  {"no policy looks at ports", v1alpha1.Workloads{}, "nothing", GotThrough, "open the port of a kubelet on a node"},
		"ports":    {"without lists, ports and probes are all", v1alpha1.Workloads{}, "hostPort livenessProbe", Stopped, ""},
		"probes":   {"no policy looks at probes", v1alpha1.Workloads{}, "hostPort", GotThrough, "have the kubelet connect to an address of its choice"},
		"images":   {"an image volume is outside of the list", v1alpha1.Workloads{Images: images}, "hostPort livenessProbe", GotThrough, "mount an image of any registry"},
		"devices":  {"a device is outside of the list", v1alpha1.Workloads{DeviceClasses: devices}, "hostPort livenessProbe", GotThrough, "claim a device of any class"},
		"complete": {"everything is refused", v1alpha1.Workloads{Images: images, DeviceClasses: devices}, "hostPort livenessProbe tenure-canary.example", Stopped, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				for _, text := range strings.Fields(tc.refused) {
					if strings.Contains(fmt.Sprint(o), text) {
						return forbidden("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no")
					}
				}
				return c.Create(ctx, o, opts...)
			}})
			e.limits.Workloads = tc.limits
			if f := e.outsideOfLists()(t.Context(), e); f.Outcome != tc.outcome || !strings.Contains(f.Evidence, tc.evidence) {
				t.Errorf("%s: got %+v, want %v with %q", tc.reason, f, tc.outcome, tc.evidence)
			}
		})
	}
}

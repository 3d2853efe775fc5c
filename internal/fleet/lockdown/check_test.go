package lockdown

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestWaits(t *testing.T) {
	t.Parallel()
	const narrow = "{spec: {tenants: {bounds: {maxObjects: 20, maxTimeout: 1m}}}}"
	controller := func(name, args string) string {
		return "{kind: Deployment, metadata: {name: " + name + "}, spec: {template: {spec: {containers: [{name: manager, args: [" + args + "]}]}}}}"
	}
	for _, tc := range []struct {
		reason, profile, controller string
		want                        time.Duration
	}{
		{"Flux's own number of workers", narrow, controller("kustomize-controller", "--log-level=info"), 6 * time.Minute},
		{"one that the fleet says", narrow, controller("kustomize-controller", "--concurrent=20"), 2 * time.Minute},
		{"the last one counts", narrow, controller("kustomize-controller", "--concurrent=20, --concurrent=10"), 3 * time.Minute},
		{"another controller's is nothing to it", narrow, controller("kustomize-controller-gold", "--concurrent=20"), 6 * time.Minute},
		{"one that is no number", narrow, controller("kustomize-controller", "--concurrent=many"), 0},
		{"a profile without bounds", "{spec: {}}", controller("kustomize-controller", ""), 0},
		{"a profile that cannot be read", "{spec: {tenants: 1}}", controller("kustomize-controller", ""), 0},
	} {
		if got := rolloutDelay(parsed(t, tc.profile), []*unstructured.Unstructured{parsed(t, tc.controller)}); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
		}
	}
}

func parsed(t *testing.T, content string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(content), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

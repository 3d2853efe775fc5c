package lockdown

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
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

func TestKubernetesVersion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, served string
		mutating, ok   bool
		want           string
	}{
		{"too old", "v1.32.9", false, false, "v1.32.9 refuses Tenure's kinds or rules: update it to 1.33 or newer"},
		{"another major version", "v0.40.0", false, false, "update it to 1.33 or newer"},
		{"the oldest", "v1.33.0", false, true, "v1.33.0; default classes and metadata of tenants, labels of shards, and volumes in the proxy need 1.36"},
		{"with the suffix of a provider", "v1.34.2-eks-3025e55", false, true, "need 1.36"},
		{"the oldest with all features", "v1.36.0", true, true, ""},
		{"mutating policies switched off", "v1.36.1+k3s1", false, true, "need 1.36"},
		{"newer than the tests", "v1.40.1", true, true, "v1.40.1; this version of tenure was tested with 1.36 and older"},
		{"no version", "next", true, false, "next is no version: Tenure needs 1.33 or newer"},
	} {
		got := kubernetesVersion(tc.served, tc.mutating)
		if got.OK != tc.ok || !strings.Contains(got.Message, tc.want) || tc.want == "" && got.Message != tc.served {
			t.Errorf("%s: got %+v", tc.reason, got)
		}
	}
}

// TestCheckWithoutFlux checks that a cluster without Flux has no row that holds only because there is no
// Flux, and keeps the rows that fail, such as those about bindings that an earlier Flux left.
func TestCheckWithoutFlux(t *testing.T) {
	t.Parallel()
	rows := func(objects ...client.Object) map[string]bool {
		c := Cluster{
			Client: fake.NewClientBuilder().WithObjects(objects...).Build(), Namespace: "flux-system",
			Discovery: &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}},
		}
		results, err := c.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, r := range results {
			found[r.Name] = r.OK
		}
		return found
	}
	found := rows()
	if ok, listed := found["flags"]; ok || !listed {
		t.Errorf("no row says that there is no Flux: got %v", found)
	}
	for _, name := range []string{"rights of Flux", "rights of tenants", "artifacts"} {
		if _, listed := found[name]; listed {
			t.Errorf("there is a row %q: got %v", name, found)
		}
	}
	left := parsed(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: crd-controller}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: crd-controller}}")
	if ok, listed := rows(left)["rights of Flux"]; ok || !listed {
		t.Error("no row names the binding that is left of Flux")
	}
}

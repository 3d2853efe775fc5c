package lockdown

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	tenant := func(name, conditions string) *unstructured.Unstructured {
		return parsed(t, "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: "+name+"}, status: {conditions: ["+conditions+"]}}")
	}
	const at = ", lastTransitionTime: '2026-01-01T00:00:00Z', reason: Any}"
	kube := fake.NewClientBuilder().WithObjects(
		tenant("alone", "{type: HostsSeparate, status: 'True', message: no other"+at),
		tenant("shares", "{type: Ready, status: 'False', message: other"+at+", {type: HostsSeparate, status: 'False', message: other tenants may use the same hosts"+at),
		tenant("unclear", "{type: HostsSeparate, status: 'Unknown', message: an expression"+at),
		tenant("without", ""),
	).Build()
	got, err := Cluster{Client: kube, Namespace: "flux-system"}.hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Result{
		{Name: "hosts of tenant shares", Message: "other tenants may use the same hosts", Objects: []string{"Tenant shares"}},
		{Name: "hosts of tenant unclear", OK: true, Message: "an expression"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Tenants whose hosts are not separate (-want +got):\n%s", diff)
	}
}

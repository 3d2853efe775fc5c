package manager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// parse returns the object of a manifest.
func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifest))
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects: %v", len(objects), err)
	}
	return objects[0]
}

// TestClassesByLabel gives a class a label that a Tenant selects, and takes it away again, for
// each kind of class. The kind GatewayClass is served after the Tenant exists.
func TestClassesByLabel(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	owner := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "clara", Groups: []string{"system:authenticated"}})
	const selector = "selector: {matchLabels: {classes-test: gold}}"
	create(t, admin, tenantManifest("clara", "{owners: [{kind: User, name: clara}], namespaces: {create: [clara]},"+
		" workloads: {priorityClasses: {"+selector+"}, runtimeClasses: {"+selector+"}, deviceClasses: {"+selector+"}},"+
		" network: {ingressClasses: {"+selector+"}, gatewayClasses: {"+selector+"}}, storage: {classes: {allowed: [named], "+selector+"}}}"))
	testcluster.Apply(t, restConfig, func(*unstructured.Unstructured) bool { return true }, testcrds.GatewayAPI())
	testwait.For(t, "the Tenant's namespace", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKey{Name: "clara"}, &corev1.Namespace{})
		return err == nil, fmt.Sprint(err)
	})
	// The role admin has no rights on ResourceClaims and Gateways.
	create(t, admin, "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: all, namespace: clara}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: clara}]}")

	for _, kind := range []struct{ class, object, rule string }{
		{
			"{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: classes-test}, value: 1}",
			"{apiVersion: v1, kind: PodTemplate, metadata: {name: x, namespace: clara}, template: {spec: {priorityClassName: classes-test, containers: [{name: a, image: a}]}}}", "tenure-workloads",
		},
		{
			"{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: classes-test}, handler: x}",
			"{apiVersion: v1, kind: PodTemplate, metadata: {name: x, namespace: clara}, template: {spec: {runtimeClassName: classes-test, containers: [{name: a, image: a}]}}}", "tenure-workloads",
		},
		{
			"{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: classes-test}, spec: {}}",
			"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x, namespace: clara}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: classes-test}}]}}}", "tenure-claims",
		},
		{
			"{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: classes-test}, spec: {controller: example.com/x}}",
			"{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: x, namespace: clara}, spec: {ingressClassName: classes-test, rules: [{host: a.example.com}]}}", "tenure-hosts",
		},
		{
			"{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: classes-test}, spec: {controllerName: example.com/x}}",
			"{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: x, namespace: clara}, spec: {gatewayClassName: classes-test, listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.example.com}]}}", "tenure-hosts",
		},
		{
			"{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: classes-test}, provisioner: example.com/x}",
			"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x, namespace: clara}, spec: {storageClassName: classes-test, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", "tenure-claims",
		},
	} {
		class := parse(t, kind.class)
		t.Run(class.GetKind(), func(t *testing.T) {
			t.Parallel()
			use := func() error { return owner.Create(t.Context(), parse(t, kind.object), client.DryRunAll) }
			until := func(what string, allowed bool) {
				t.Helper()
				testwait.For(t, what, patience, func() (bool, string) {
					err := use()
					refused := err != nil && strings.Contains(err.Error(), "classes-test") && strings.Contains(err.Error(), "classes whose labels match the selector") && strings.Contains(err.Error(), kind.rule)
					return allowed && err == nil || !allowed && refused, fmt.Sprint(err, " manager: ", ended.Load())
				})
			}
			until("a class that does not exist to be refused", false)
			create(t, admin, kind.class)
			until("a class without the label to be refused", false)
			label := func(value string) {
				t.Helper()
				if err := admin.Patch(t.Context(), class.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"classes-test":`+value+`}}}`))); err != nil {
					t.Fatal(err)
				}
			}
			label(`"gold"`)
			until("a class with the label to be allowed", true)
			label("null")
			until("a class that lost its label to be refused", false)
			label(`"gold"`)
			until("the class to be allowed again", true)
			if err := admin.Delete(t.Context(), class.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			until("a class that was deleted to be refused", false)
		})
	}
}

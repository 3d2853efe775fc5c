package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/watch"
)

// TestSharedKinds checks each kind that config/proxy lets the proxy share: a user with a
// share of one of two objects can get, list and watch this object, and a user without a
// share sees none.
func TestSharedKinds(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gatewayclasses.gateway.networking.k8s.io, annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-sigs/gateway-api/pull/2466"}}, spec: {group: gateway.networking.k8s.io, scope: Cluster,
 names: {plural: gatewayclasses, singular: gatewayclass, kind: GatewayClass, listKind: GatewayClassList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`)
	testwait.For(t, "GatewayClasses to be served", patience, func() (bool, string) {
		code, body, _ := s.direct(t, "/apis/gateway.networking.k8s.io/v1/gatewayclasses", "application/json", "")
		return code == http.StatusOK, body
	})
	kinds := []struct{ group, version, resource, kind, rest string }{
		{"", "v1", "nodes", "Node", ""},
		{"", "v1", "persistentvolumes", "PersistentVolume", "spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}, storageClassName: kinds}"},
		{"storage.k8s.io", "v1", "storageclasses", "StorageClass", "provisioner: example.com/none"},
		{"networking.k8s.io", "v1", "ingressclasses", "IngressClass", "spec: {controller: example.com/none}"},
		{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", "value: 1"},
		{"node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", "handler: none"},
		{"gateway.networking.k8s.io", "v1", "gatewayclasses", "GatewayClass", "spec: {controllerName: example.com/none}"},
		{"resource.k8s.io", "v1", "deviceclasses", "DeviceClass", "spec: {}"},
	}
	given := "{apiVersion: capsule.clastix.io/v1beta1, kind: GlobalProxySettings, metadata: {name: kinds}, spec: {rules: [{subjects: [{kind: ServiceAccount, name: \"system:serviceaccount:kinds-home:reader\"}], clusterResources: ["
	for _, k := range kinds {
		apiVersion := strings.TrimPrefix(k.group+"/"+k.version, "/")
		for _, object := range []string{"mine, labels: {kinds: x}", "theirs, labels: {kinds: z}"} {
			apply(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: kinds-%s}, %s}", apiVersion, k.kind, object, k.rest))
		}
		given += fmt.Sprintf("{apiGroups: [%q], resources: [%s], operations: [List, Get], selector: {matchLabels: {kinds: x}}}, ", k.group, k.resource)
	}
	apply(t, namespace("kinds-home", "kinds")+given+"]}]}}")
	reader, stranger := account(t, "kinds-home", "reader"), account(t, "kinds-home", "stranger")
	for _, k := range kinds {
		t.Run(k.resource, func(t *testing.T) {
			t.Parallel()
			path := "/apis/" + k.group + "/" + k.version + "/" + k.resource
			if k.group == "" {
				path = "/api/" + k.version + "/" + k.resource
			}
			testwait.For(t, "the proxy to know what is given", patience, func() (bool, string) {
				code, body, _ := s.raw(t, s.request(t, http.MethodGet, path, reader))
				return code == http.StatusOK, body
			})
			for _, tc := range []struct {
				reason, token, path string
				code                int
				want                string
			}{
				{"a list", reader, "", http.StatusOK, "kinds-mine"},
				{"a watch", reader, "?watch=true&timeoutSeconds=1", http.StatusOK, "kinds-mine"},
				{"a get", reader, "/kinds-mine", http.StatusOK, "kinds-mine"},
				{"a get of another one", reader, "/kinds-theirs", http.StatusForbidden, ""},
				{"a list by somebody else", stranger, "", http.StatusForbidden, ""},
				{"a watch by somebody else", stranger, "?watch=true&timeoutSeconds=1", http.StatusForbidden, ""},
				{"a get by somebody else", stranger, "/kinds-mine", http.StatusForbidden, ""},
			} {
				var code int
				var body string
				testwait.For(t, tc.reason+" to show something", patience, func() (bool, string) {
					code, body, _ = s.raw(t, s.request(t, http.MethodGet, path+tc.path, tc.token))
					// On a busy machine a watch may end before it has shown the existing
					// objects.
					return body != "" || tc.want == "", fmt.Sprint(code)
				})
				if got := namesOf(t, body); code != tc.code || got != tc.want {
					t.Errorf("%s: want %d with %q, got %d with %q: %s", tc.reason, tc.code, tc.want, code, got, body)
				}
			}
		})
	}
}

// namesOf returns the names of the objects in an object, a list, or the events of a watch.
// It ignores MODIFIED events of objects that the watch has shown, as Kubernetes causes for
// nodes.
func namesOf(t *testing.T, body string) string {
	t.Helper()
	type object struct{ Metadata struct{ Name string } }
	var names []string
	for decoder := json.NewDecoder(strings.NewReader(body)); decoder.More(); {
		var found struct {
			object
			Type   string
			Object object
			Items  []object
		}
		if err := decoder.Decode(&found); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		for _, o := range append(found.Items, found.object, found.Object) {
			changed := found.Type == string(watch.Modified) && slices.Contains(names, o.Metadata.Name)
			if o.Metadata.Name != "" && !changed {
				names = append(names, o.Metadata.Name)
			}
		}
	}
	return strings.Join(names, " ")
}

func TestNamesOf(t *testing.T) {
	t.Parallel()
	const mine, theirs = `"object":{"metadata":{"name":"mine"}}}`, `"object":{"metadata":{"name":"theirs"}}}`
	for _, tc := range []struct{ reason, body, want string }{
		{"nothing", "", ""},
		{"an object", `{"metadata":{"name":"mine"}}`, "mine"},
		{"a list that names one twice", `{"items":[{"metadata":{"name":"mine"}},{"metadata":{"name":"mine"}}]}`, "mine mine"},
		{"a watch with a change of what it has shown", `{"type":"ADDED",` + mine + `{"type":"MODIFIED",` + mine, "mine"},
		{"a watch with a change of something else", `{"type":"ADDED",` + mine + `{"type":"MODIFIED",` + theirs, "mine theirs"},
		{"a watch that shows one twice", `{"type":"ADDED",` + mine + `{"type":"ADDED",` + mine, "mine mine"},
	} {
		if got := namesOf(t, tc.body); got != tc.want {
			t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
		}
	}
}

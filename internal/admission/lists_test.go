package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API server refuses lists that can match nothing, or more than their author means, when they are
// written.
func TestListsRefused(t *testing.T) {
	t.Parallel()
	admin, _, _ := cluster(t)
	for _, tc := range []struct{ reason, spec, want string }{
		{"a registry with a port, and all below", "workloads: {images: {registries: ['registry.example.com:5000/**']}}", ""},
		{"every registry of a domain", "workloads: {images: {registries: ['*.example.com/**']}}", ""},
		{"every registry of a top-level domain", "workloads: {images: {registries: ['registry.*/app']}}", "no * in the last label of its registry"},
		{"every registry", "workloads: {images: {registries: ['*/**']}}", "no * in the last label of its registry"},
		{"every image", "workloads: {images: {registries: ['**']}}", "Invalid value"},
		{"everything below, in the middle", "workloads: {images: {registries: ['registry.example.com/**/app']}}", "** at its end only"},
		{"a registry of version 6", "workloads: {images: {registries: ['[::1]:5000/**']}}", "should match"},
		{"a tag", "workloads: {images: {registries: ['registry.example.com/app:1']}}", "should match"},
		{"a digest", "workloads: {images: {registries: ['registry.example.com/app" + digest + "']}}", "should match"},
		{"an address with a scheme", "workloads: {images: {registries: ['https://registry.example.com/**']}}", "should match"},
		{"capital letters, which no image has", "workloads: {images: {registries: ['registry.example.com/App']}}", "should match"},
		{"an image without its registry and user", "workloads: {images: {registries: [nginx]}}", "Invalid value"},
		{"an image of Docker Hub without its registry, which no image matches", "workloads: {images: {registries: [acme/nginx]}}", "should match"},
		{"a registry without a domain", "workloads: {images: {registries: [harbor/**]}}", "should match"},
		{"a registry without a domain, with a port", "workloads: {images: {registries: ['harbor:5000/**']}}", ""},
		{"the registry of the node", "workloads: {images: {registries: [localhost/**, 'localhost:5000/a']}}", ""},
		{"an expression that is none", "workloads: {images: {registryExpression: '('}}", "syntax of RE2"},
		{"a pull policy that is not allowed", "workloads: {images: {pullPolicy: Never, pullPolicies: [Always]}}", "pullPolicy is one of pullPolicies"},
		{"a default that is not allowed", "storage: {classes: {allowed: [fast], default: slow}}", "default is one of the allowed classes"},
		{"a default that a pattern may allow", "storage: {classes: {allowed: ['f*'], default: fast}}", ""},
		{"a default of devices", "workloads: {deviceClasses: {allowed: [gpu], default: gpu}}", "device classes have no default"},
		{"the most names", "storage: {classes: {allowed: [" + names(64) + "]}}", ""},
		{"1,000 names", "storage: {classes: {allowed: [" + names(1000) + "]}}", "Too many: 1000: must have at most 64 items"},
		{"a name twice", "storage: {classes: {allowed: [a, a]}}", "Duplicate value"},
		{"an expression of hosts that is none", "network: {hosts: {expression: 'a{2,1}'}}", "syntax of RE2"},
		{"a host in unicode, which no object has", "network: {hosts: {allowed: ['sh\u00f6p.example.com']}}", "should match"},
		{"a host in punycode", "network: {hosts: {allowed: ['xn--shp-sna.example.com']}}", ""},
		{"a range of ports from behind", "network: {services: {nodePorts: ['30200-30100']}}", "the lower one first"},
		{"a range of addresses that is none", "network: {services: {externalIPs: ['203.0.113.0/33']}}", "a range of addresses is"},
		{"no type", "network: {services: {types: []}}", "should have at least 1 items"},
		{"no registry", "workloads: {images: {registries: []}}", "should have at least 1 items"},
	} {
		for _, manifest := range []string{
			"{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: lists}, spec: {" + tc.spec + "}}",
			"{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: tools}, spec: {tenant: x, tenants: {" + tc.spec + "}}}",
		} {
			u := parse(t, manifest)
			t.Run(tc.reason+" of "+u.GetKind(), func(t *testing.T) {
				t.Parallel()
				check(t, admin.Create(t.Context(), u, client.DryRunAll), tc.want)
			})
		}
	}
}

// names returns the names of n classes.
func names(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("class-%d", i)
	}
	return strings.Join(all, ", ")
}

// Lists that match everything, and lists that match nothing.
const extremeTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE, labels: {tenure.dev/tenant: NAMESPACE, tenure.dev/parameters: "true"}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: NAMESPACE}
spec: {tenant: NAMESPACE, platformNamespaces: [flux-system], tenants: {LISTS}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: NAMESPACE, labels: {tenure.dev/managed-by: manager}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: tenant, namespace: NAMESPACE}]`

// A list that matches everything allows what the safe default of its field forbids, and one that matches
// nothing forbids what the default allows.
func TestExtremeLists(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	lists := map[string]string{
		"everything": "workloads: {images: {registryExpression: '.*'}, priorityClasses: {allowed: ['*']}, schedulers: ['*'], tolerations: ['*'], hostPorts: ['1-65535']}," +
			" network: {services: {types: [ClusterIP, NodePort, LoadBalancer, ExternalName], externalIPs: ['0.0.0.0/0', '::/0']}, hosts: {allowed: ['*']}, ingressClasses: {expression: '.'}}, storage: {classes: {selector: {}, allowed: ['*']}, volumes: {allowed: ['*']}}",
		"nothing": "workloads: {images: {registryExpression: '^$'}, priorityClasses: {}, runtimeClasses: {allowed: []}, deviceClasses: {expression: '^$'}}," +
			" network: {services: {types: [ExternalName]}, hosts: {}, ingressClasses: {allowed: []}}, storage: {classes: {expression: '^absent$'}, volumes: {}}",
	}
	tenants := map[string]client.Client{}
	for namespace, list := range lists {
		makeAll(t, admin, strings.Split(strings.NewReplacer("NAMESPACE", namespace, "LISTS", list).Replace(extremeTenant), "---\n"))
		tenants[namespace] = inNamespace(t, restConfig, namespace, "tenant")
		testwait.For(t, "the rights of the tenant in "+namespace, patience, func() (bool, string) {
			u := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}")
			u.SetNamespace(namespace)
			err := tenants[namespace].Create(t.Context(), u, client.DryRunAll)
			return err == nil, fmt.Sprint(err)
		})
	}
	set := func(spec string) string {
		return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {" + spec + "}}}}"
	}
	const claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, "
	for what, c := range map[string]struct{ manifest, nothing string }{
		"an image":         {set("containers: [{name: a, image: 'evil.example/a:1'}]"), "must not use image evil.example/a:1 (allowed: registries that match ^$)"},
		"a priority class": {set("priorityClassName: system-node-critical, schedulerName: mine, tolerations: [{operator: Exists}], containers: [{name: a, image: a, ports: [{containerPort: 1, hostPort: 1}]}]"), "must not have scheduler mine (allowed: default-scheduler)"},
		"a type":           {"{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: [{port: 80}]}}", "must not have type ClusterIP (allowed: ExternalName)"},
		"an address":       {"{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {externalIPs: [203.0.113.7, '2001:db8::1'], ports: [{port: 80}]}}", "must not have type ClusterIP"},
		"a host":           {"{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: x}, spec: {ingressClassName: a, rules: [{host: '*.example.com'}, {host: a.example.com}]}}", "must not have host *.example.com, host a.example.com (allowed: )"},
		"a class":          {claim + "storageClassName: fast}}", "must not have storage class 'fast' (allowed: names that match ^absent$)"},
		"a volume":         {claim + "volumeName: a}}", "must not choose an existing volume"},
	} {
		for namespace, want := range map[string]string{"everything": "", "nothing": c.nothing} {
			t.Run(what+" of "+namespace, func(t *testing.T) {
				t.Parallel()
				u := parse(t, c.manifest)
				u.SetNamespace(namespace)
				check(t, tenants[namespace].Create(t.Context(), u, client.DryRunAll), want)
			})
		}
	}
}

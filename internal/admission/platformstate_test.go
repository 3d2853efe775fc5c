package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAllocations checks that a tenant with all rights in its namespaces does not write what the platform has allocated
// to claims and Pods, and what the scheduler reads about storage. The controllers of the platform do.
func TestAllocations(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	makeAll(t, admin, strings.Split(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: allocations}
rules:
  - {apiGroups: [""], resources: [persistentvolumeclaims/status, pods/status], verbs: [patch]}
  - {apiGroups: [resource.k8s.io], resources: [resourceclaims/status, resourceclaims/binding], verbs: [patch, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: allocations}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: allocations}
subjects: [{kind: ServiceAccount, name: resizer, namespace: storage}, {kind: Group, apiGroup: rbac.authorization.k8s.io, name: "test:nodes"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: allocations-binding}
rules: [{apiGroups: [resource.k8s.io], resources: [resourceclaims/binding], verbs: [patch, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: allocations-binding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: allocations-binding}
subjects: [{kind: ServiceAccount, name: hostile, namespace: hostile}]
`, "---\n"))
	as := func(name string, groups ...string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")})
	}
	const (
		larger    = `{"status":{"capacity":{"storage":"1Gi"}}}`
		allocated = `{"status":{"allocation":{"devices":{"results":[{"request":"a","driver":"gpu.example.com","pool":"p","device":"theirs"}]}}}}`
		status    = "has a status that only the platform writes"
		nominated = `{"status":{"nominatedNodeName":"theirs"}}`
		taken     = `{"status":{"containerStatuses":[{"name":"a","image":"a","imageID":"","ready":false,"restartCount":0,"resources":{"requests":{"cpu":"1000"}}}]}}`
	)
	for _, namespace := range []string{"hostile", "hostile-own"} {
		claim := parse(t, in(namespace, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: allocations, namespace: apps}, spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 10Gi}}}}"))
		device := parse(t, in(namespace, "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: allocations, namespace: apps}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}]}}}"))
		capacity := parse(t, in(namespace, "{apiVersion: storage.k8s.io/v1, kind: CSIStorageCapacity, metadata: {name: allocations, namespace: apps}, storageClassName: fast, capacity: 100Ti, nodeTopology: {}}"))
		pod := parse(t, in(namespace, "{apiVersion: v1, kind: Pod, metadata: {name: allocations, namespace: apps}, spec: {schedulingGates: [{name: example.com/wait}], resourceClaims: [{name: a, resourceClaimTemplateName: a}], containers: [{name: a, image: a}]}}"))
		tenant := hostile(t, restConfig)
		for _, u := range []client.Object{claim, pod} {
			if err := admin.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
		}
		patch := func(by client.Client, u client.Object, change string) error {
			return by.SubResource("status").Patch(t.Context(), u.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
		}
		testwait.For(t, "the controllers to have their rights", patience, func() (bool, string) {
			err := patch(as("system:serviceaccount:storage:resizer"), claim, `{"status":{}}`)
			return err == nil, fmt.Sprint(err)
		})
		made := capacity.DeepCopy()
		made.SetName("made")
		if err := admin.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			reason string
			err    error
			want   string
		}{
			{"the size of a volume, by which a quota would count less", patch(tenant, claim, larger), "PersistentVolumeClaim allocations " + status},
			{"a status without a change", patch(tenant, claim, `{"status":{"phase":"Pending"}}`), ""},
			{"the size, by the controller that resizes volumes", patch(as("system:serviceaccount:storage:resizer"), claim, larger), ""},
			{"the size, by the kubelet", patch(as("system:node:one", "system:nodes", "test:nodes"), claim, larger), ""},
			{"a place for a waiting Pod on a node of others", patch(tenant, pod, nominated), "Pod allocations " + status},
			{"more of a node than the Pod requests", patch(tenant, pod, taken), "Pod allocations " + status},
			{"a condition of the tenant's own", patch(tenant, pod, `{"status":{"conditions":[{"type":"example.com/served","status":"True"}]}}`), ""},
			{"a place for a waiting Pod, by a scheduler", patch(as("system:serviceaccount:storage:resizer"), pod, nominated), ""},
			{"what a Pod takes, by the kubelet", patch(as("system:node:one", "system:nodes", "test:nodes"), pod, taken), ""},
			{"capacity of storage, which the scheduler reads for every Pod", tenant.Create(t.Context(), capacity.DeepCopy(), client.DryRunAll), "CSIStorageCapacity allocations must not be made by a tenant"},
			{"a change of the capacity", tenant.Patch(t.Context(), made.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"capacity":"1Ti"}`)), client.DryRunAll), "CSIStorageCapacity made must not be made by a tenant"},
			{"capacity, by the platform", admin.Create(t.Context(), capacity.DeepCopy(), client.DryRunAll), ""},
		} {
			t.Run(namespace+" "+tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
		}
		// By default, Kubernetes 1.33 serves no claims of devices.
		t.Run(namespace+" a device of others", func(t *testing.T) {
			if err := admin.Create(t.Context(), device); err != nil {
				t.Fatal(err)
			}
			// Before 1.36, the right to the status was enough. The tenant has the right that 1.36 asks for.
			check(t, patch(tenant, device, allocated), "ResourceClaim allocations "+status)
			check(t, patch(as("system:kube-scheduler", "system:masters"), device, allocated), "")
			check(t, patch(tenant, pod, `{"status":{"resourceClaimStatuses":[{"name":"a","resourceClaimName":"theirs"}]}}`), "Pod allocations "+status)
		})
	}
}

// TestQuotas checks that a tenant's own ResourceQuota keeps out no object of the platform.
func TestQuotas(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	quota := func(namespace, name, hard string) client.Object {
		return parse(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: "+name+", namespace: "+namespace+"}, spec: {hard: {"+hard+"}}}")
	}
	for _, namespace := range []string{"hostile", "hostile-own"} {
		old := quota(namespace, "older", "count/secrets: '1000', pods: '1000'")
		if err := admin.Create(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		change := func(hard string) error {
			return tenant.Patch(t.Context(), old.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hard":{`+hard+`}}}`)), client.DryRunAll)
		}
		create := func(hard string) error {
			return tenant.Create(t.Context(), quota(namespace, "mine", hard), client.DryRunAll)
		}
		const counted = "ResourceQuota mine must not limit "
		for _, tc := range []struct {
			reason string
			err    error
			want   string
		}{
			{"no network policies, as the platform writes later", create("count/networkpolicies.networking.k8s.io: '0'"), counted + "count/networkpolicies.networking.k8s.io in spec.hard"},
			{"no role bindings", create("pods: '1', count/rolebindings.rbac.authorization.k8s.io: '0'"), counted + "count/rolebindings.rbac.authorization.k8s.io in spec.hard"},
			{"no parameters", create("count/tenantparameters.tenure.dev: '0'"), counted},
			{"Secrets by the older name", create("secrets: '0'"), counted},
			{"quotas by the older name", create("resourcequotas: '1'"), counted},
			{"policies of a network plugin", create("count/ciliumnetworkpolicies.cilium.io: '0'"), counted},
			{"Flux's kinds", create("count/kustomizations.kustomize.toolkit.fluxcd.io: '0'"), counted},
			{"compute and storage", create("cpu: 1, limits.memory: 1Gi, requests.nvidia.com/gpu: 1, hugepages-2Mi: 1Gi, requests.storage: 1Gi, fast.storageclass.storage.k8s.io/requests.storage: 1Gi, gpu.deviceclass.resource.k8s.io/devices: 1, pods: 5, persistentvolumeclaims: 5"), ""},
			{"workloads, Services and Ingresses", create("count/deployments.apps: 5, count/jobs.batch: 5, count/pods: 5, services: 5, services.loadbalancers: 1, count/ingresses.networking.k8s.io: 5"), ""},
			{"an older count, unchanged", change(`"pods":"500"`), ""},
			{"an older count, lower", change(`"count/secrets":"900"`), "ResourceQuota older must not limit count/secrets"},
			{"the platform's", admin.Create(t.Context(), quota(namespace, "mine", "count/secrets: 5"), client.DryRunAll), ""},
		} {
			t.Run(namespace+" "+tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
		}
		if err := admin.Delete(t.Context(), old); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEvents checks that a tenant reports nothing about objects of others, which a reader of all Events would believe.
func TestEvents(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	event := func(about string) string {
		return "{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: x, namespace: hostile-own}, " + about + ", reason: Failed, note: failed, action: Reconcile, type: Warning, reportingController: kustomize-controller, reportingInstance: a, eventTime: '2026-01-01T00:00:00.000000Z'}"
	}
	older := func(about string) string {
		return "{apiVersion: v1, kind: Event, metadata: {name: x, namespace: hostile-own}, " + about + ", reason: Failed, message: failed, type: Warning, source: {component: kubelet}}"
	}
	const want = "Event x must be about objects of namespace hostile-own"
	for _, tc := range []struct{ reason, manifest, want string }{
		{"the platform's sync", event("regarding: {apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, name: tenants, namespace: flux-system}"), want},
		{"a node, which Kubernetes refuses", event("regarding: {apiVersion: v1, kind: Node, name: one}"), "does not match event.namespace"},
		{"its own Pod, related to a node", event("regarding: {apiVersion: v1, kind: Pod, name: x, namespace: hostile-own}, related: {apiVersion: v1, kind: Node, name: one}"), want},
		{"a node, in the core group", older("involvedObject: {apiVersion: v1, kind: Node, name: one, uid: one, namespace: hostile-own}"), want},
		{"its own Pod, related to an object of others", older("involvedObject: {apiVersion: v1, kind: Pod, name: x, namespace: hostile-own}, related: {kind: Pod, name: x, namespace: apps}"), want},
		{"its own object", event("regarding: {apiVersion: v1, kind: Pod, name: x, namespace: hostile-own}, related: {apiVersion: v1, kind: ConfigMap, name: x, namespace: hostile-own}"), ""},
		{"its own Pod, in the core group", older("involvedObject: {apiVersion: v1, kind: Pod, name: x, namespace: hostile-own}"), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			check(t, tenant.Create(t.Context(), parse(t, tc.manifest), client.DryRunAll), tc.want)
		})
	}
	for _, tc := range []struct{ reason, manifest, change, want string }{
		{"a change of its own", event("regarding: {apiVersion: v1, kind: Pod, name: x, namespace: hostile-own}"), `{"related":{"kind":"Pod","name":"x","namespace":"apps"}}`, "Event own must be about objects of namespace hostile-own"},
		{"one that is older than the rule", event("regarding: {apiVersion: v1, kind: Pod, name: x, namespace: apps}"), `{"count":2}`, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			name := "old"
			if tc.want != "" {
				name = "own"
			}
			if err := admin.Create(t.Context(), parse(t, strings.Replace(tc.manifest, "name: x", "name: "+name, 1))); err != nil {
				t.Fatal(err)
			}
			u := parse(t, "{apiVersion: v1, kind: Event, metadata: {name: "+name+", namespace: hostile-own}}")
			check(t, tenant.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(tc.change)), client.DryRunAll), tc.want)
		})
	}
}

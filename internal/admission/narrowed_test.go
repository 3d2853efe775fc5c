package admission_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A tenant with wide lists, which become the narrow ones while its objects exist.
const narrowedTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: narrowed, labels: {tenure.dev/tenant: narrowed, tenure.dev/parameters: "true"}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: narrowed}
spec:
  tenant: narrowed
  platformNamespaces: [flux-system]
  tenants:
    workloads: {schedulers: [old], tolerations: [old], hostPorts: ["9100"]}
    network: {services: {types: [ClusterIP, NodePort, ExternalName], externalIPs: [203.0.113.0/24]}}
    storage: {existingVolumes: true}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: narrowed, labels: {tenure.dev/managed-by: manager}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: tenant, namespace: narrowed}]
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: narrowed-old}
value: 1000
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: narrowed-old}
handler: runc
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: narrowed-old}
provisioner: example.com/none
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: narrowed-old, labels: {a: b}}
spec: {storageClassName: narrowed-old, claimRef: {namespace: narrowed, name: old}, accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, persistentVolumeReclaimPolicy: Retain, csi: {driver: example.com, volumeHandle: old}}`

// narrowedTo are the narrow lists.
const narrowedTo = `{"spec":{"tenants":{
"workloads":{"images":{"registries":["registry.example.com/**"],"pullPolicies":["Always"],"digests":"Required","registry":"Required"},"priorityClasses":{"allowed":["new"]},"runtimeClasses":{"allowed":["new"]},
 "deviceClasses":{"allowed":["new"]},"schedulers":null,"tolerations":null,"hostPorts":null,"nodes":{"selector":{"pool":"new"}},"automountTokens":"Forbidden","podAnnotations":{"allowed":["new"]}},
"network":{"services":{"types":["ClusterIP"],"externalIPs":null,"nodePorts":["30100"],"deniedLabels":["old"],"deniedAnnotations":["old"],"loadBalancerClasses":{"allowed":["new"]}},
 "hosts":{"allowed":["*.new.example.com"]},"ingressClasses":{"allowed":["new"]},"gatewayClasses":{"allowed":["new"]},"gateways":{"allowed":["gateways/new"]}},
"storage":{"classes":{"allowed":["new"]},"attributesClasses":{"allowed":["new"]},"existingVolumes":null,"volumes":{"allowed":["new"]}}}}}`

// oldPod is the spec of a Pod that keeps to the wide lists alone.
const oldPod = "containers: [{name: app, image: 'old.example.com/app:1', imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 1m}}, ports: [{containerPort: 9100, hostPort: 9100}]}]," +
	" priorityClassName: narrowed-old, runtimeClassName: narrowed-old, schedulerName: old, tolerations: [{key: old, operator: Exists}], volumes: [{name: old, nfs: {server: 192.0.2.1, path: /}}]"

// narrowedCase is an object that keeps to the wide lists and not to the narrow ones.
type narrowedCase struct {
	manifest string
	// refusal is a part of the message for the same object once more.
	refusal string
	// phase is the phase for which the object waits, if any.
	phase string
	// passes are changes that do not touch a field with a list, as merge or strategic merge patches, by what
	// they do; one that begins with the name of a subresource and a space is about the subresource.
	passes map[string]string
	// refused are changes that touch such a field, with a part of the message.
	refused map[string]string
}

// old are the objects, by kind.
var old = map[string]narrowedCase{
	"Deployment": {
		manifest: "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {" + oldPod + "}}}}",
		refusal:  "must not have scheduler old (allowed: default-scheduler)",
		passes: map[string]string{
			"its replicas":                         `{"spec":{"replicas":2}}`,
			"scale of its replicas":                `{"spec":{"replicas":3}}`,
			"a restart":                            `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}}}}}`,
			"a variable":                           `{"spec":{"template":{"spec":{"containers":[{"name":"app","env":[{"name":"A","value":"b"}]}]}}}}`,
			"requests":                             `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"2m"}}}]}}}}`,
			"a new container":                      `{"spec":{"template":{"spec":{"containers":[{"name":"new","image":"registry.example.com/a` + digest + `","imagePullPolicy":"Always"}]}}}}`,
			"a new volume":                         `{"spec":{"template":{"spec":{"volumes":[{"name":"new","emptyDir":{}}]}}}}`,
			"its strategy":                         `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`,
			"status of a rollout":                  `{"status":{"observedGeneration":1}}`,
			"a pause":                              `{"spec":{"paused":true}}`,
			"another container with the old image": `{"spec":{"template":{"spec":{"initContainers":[{"name":"init","image":"old.example.com/app:1","imagePullPolicy":"Always"}]}}}}`,
		},
		refused: map[string]string{
			`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"old.example.com/app:2"}]}}}}`:                         "must not use image old.example.com/app:2",
			`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"registry.example.com/app` + digest + `"}]}}}}`:        "must not have imagePullPolicy IfNotPresent (allowed: Always)",
			`{"spec":{"template":{"spec":{"containers":[{"name":"app","imagePullPolicy":"Never"}]}}}}`:                               "must not have imagePullPolicy Never",
			`{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"old.example.com/app:1","imagePullPolicy":"Never"}]}}}}`: "must not have imagePullPolicy",
			`{"spec":{"template":{"spec":{"tolerations":[{"key":"old","operator":"Exists"},{"key":"older","operator":"Exists"}]}}}}`: "must not tolerate taints older",
			`{"spec":{"template":{"spec":{"priorityClassName":"narrowed-older"}}}}`:                                                  "must not have priority class narrowed-older",
			`{"spec":{"template":{"spec":{"runtimeClassName":"narrowed-older"}}}}`:                                                   "must not have runtime class narrowed-older",
			`{"spec":{"template":{"spec":{"schedulerName":"older"}}}}`:                                                               "must not have scheduler older",
			`{"spec":{"template":{"spec":{"nodeSelector":{"pool":"old"}}}}}`:                                                         "must not run on nodes of others",
			`{"spec":{"template":{"spec":{"volumes":[{"name":"older","nfs":{"server":"192.0.2.2","path":"/"}}]}}}}`:                  "in volume older",
			`{"spec":{"template":{"spec":{"automountServiceAccountToken":true}}}}`:                                                   "must not mount a token",
			`{"spec":{"template":{"spec":{"containers":[{"name":"app","ports":[{"containerPort":9101,"hostPort":9101}]}]}}}}`:        "must not open port 9101",
		},
	},
	"Pod": {
		manifest: "{apiVersion: v1, kind: Pod, spec: {serviceAccountName: default, " + oldPod + "}}",
		refusal:  "must not have scheduler old (allowed: default-scheduler)",
		passes: map[string]string{
			"a deadline":                           `{"spec":{"activeDeadlineSeconds":3600}}`,
			"status of its phase":                  `{"status":{"phase":"Running"}}`,
			"ephemeralcontainers with a new image": `{"spec":{"ephemeralContainers":[{"name":"new","image":"registry.example.com/a` + digest + `","imagePullPolicy":"Always"}]}}`,
			"resize of its requests":               `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"2m"}}}]}}`,
		},
		refused: map[string]string{
			`{"spec":{"containers":[{"name":"app","image":"old.example.com/app:2"}]}}`:                         "must not use image old.example.com/app:2",
			`{"spec":{"containers":[{"name":"app","image":"registry.example.com/app` + digest + `"}]}}`:        "must not have imagePullPolicy IfNotPresent",
			`{"spec":{"tolerations":[{"key":"old","operator":"Exists"},{"key":"older","operator":"Exists"}]}}`: "must not tolerate taints older",
			`{"metadata":{"annotations":{"iam.amazonaws.com/role":"older"}}}`:                                  "must not have the annotation iam.amazonaws.com/role",
		},
	},
	"StatefulSet": {
		manifest: "{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 0, serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {" + oldPod + "}}," +
			" volumeClaimTemplates: [{metadata: {name: d}, spec: {storageClassName: narrowed-old, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}",
		refusal: "must not have storage class 'narrowed-old' (allowed: new)",
		passes: map[string]string{
			"its replicas":          `{"spec":{"replicas":1}}`,
			"scale of its replicas": `{"spec":{"replicas":2}}`,
			"a variable":            `{"spec":{"template":{"spec":{"containers":[{"name":"app","env":[{"name":"A","value":"b"}]}]}}}}`,
			"its strategy":          `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`,
		},
		refused: map[string]string{`{"spec":{"template":{"spec":{"schedulerName":"older"}}}}`: "must not have scheduler older"},
	},
	"CronJob": {
		manifest: "{apiVersion: batch/v1, kind: CronJob, spec: {schedule: '0 0 1 1 *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, " + oldPod + "}}}}}}",
		refusal:  "must not have scheduler old (allowed: default-scheduler)",
		passes:   map[string]string{"a suspension": `{"spec":{"suspend":true}}`, "its schedule": `{"spec":{"schedule":"0 0 2 1 *"}}`},
		refused:  map[string]string{`{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"schedulerName":"older"}}}}}}`: "must not have scheduler older"},
	},
	"Job": {
		manifest: "{apiVersion: batch/v1, kind: Job, spec: {suspend: true, template: {spec: {restartPolicy: Never, " + oldPod + "}}}}",
		refusal:  "must not have scheduler old (allowed: default-scheduler)",
		passes:   map[string]string{"its parallelism": `{"spec":{"parallelism":2}}`, "its deadline": `{"spec":{"activeDeadlineSeconds":3600}}`},
		// A Job that is suspended may change its nodes.
		refused: map[string]string{`{"spec":{"template":{"spec":{"tolerations":[{"key":"older","operator":"Exists"}]}}}}`: "must not tolerate taints older"},
	},
	"Service": {
		manifest: "{apiVersion: v1, kind: Service, metadata: {labels: {old: a}, annotations: {old: a}}, spec: {type: NodePort, externalIPs: [203.0.113.7], selector: {a: b}, ports: [{name: a, port: 80, nodePort: 30700}]}}",
		refusal:  "must not have type NodePort (allowed: ClusterIP)",
		passes: map[string]string{
			"its selector": `{"spec":{"selector":{"a":"c"}}}`,
			"affinity":     `{"spec":{"sessionAffinity":"ClientIP"}}`,
		},
		refused: map[string]string{
			`{"spec":{"externalIPs":["203.0.113.7","203.0.113.8"]}}`:                                                        "must not take the address 203.0.113.8",
			`{"spec":{"ports":[{"name":"a","port":80,"nodePort":30700},{"name":"b","port":81,"nodePort":30701}]}}`:          "must not open port 30701",
			`{"spec":{"type":"ExternalName","externalName":"a.example.com","clusterIP":"","clusterIPs":null,"ports":null}}`: "must not have type ExternalName",
			`{"metadata":{"labels":{"old":"b"}}}`:                                                                           "must not have the label old",
			`{"metadata":{"annotations":{"old":"b"}}}`:                                                                      "must not have the annotation old",
		},
	},
	"Ingress": {
		manifest: "{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {ingressClassName: old, tls: [{hosts: [a.old.example.com], secretName: a}], rules: [{host: a.old.example.com}]}}",
		refusal:  "must not have host a.old.example.com",
		passes: map[string]string{
			"another Secret":        `{"spec":{"tls":[{"hosts":["a.old.example.com"],"secretName":"b"}]}}`,
			"a path":                `{"spec":{"rules":[{"host":"a.old.example.com","http":{"paths":[{"path":"/a","pathType":"Prefix","backend":{"service":{"name":"a","port":{"number":80}}}}]}}]}}`,
			"a new host":            `{"spec":{"rules":[{"host":"a.old.example.com"},{"host":"a.new.example.com"}]}}`,
			"status of its address": `{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.7"}]}}}`,
		},
		refused: map[string]string{
			`{"spec":{"rules":[{"host":"b.old.example.com"}]}}`:                         "must not have host b.old.example.com",
			`{"spec":{"ingressClassName":"older"}}`:                                     "must not have ingress class 'older'",
			`{"spec":{"defaultBackend":{"service":{"name":"a","port":{"number":80}}}}}`: "must not have no host",
		},
	},
	"HTTPRoute": {
		manifest: "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: {hostnames: [a.old.example.com], parentRefs: [{name: old, namespace: gateways}]}}",
		refusal:  "must not have host a.old.example.com",
		passes:   map[string]string{"a rule": `{"spec":{"rules":[{"backendRefs":[{"name":"a","port":80}]}]}}`, "a new host": `{"spec":{"hostnames":["a.old.example.com","a.new.example.com"]}}`},
		refused: map[string]string{
			`{"spec":{"hostnames":["b.old.example.com"]}}`:                      "must not have host b.old.example.com",
			`{"spec":{"parentRefs":[{"name":"older","namespace":"gateways"}]}}`: "must not attach to Gateway gateways/older",
		},
	},
	"Gateway": {
		manifest: "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, spec: {gatewayClassName: old, listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.old.example.com}]}}",
		refusal:  "must not have host a.old.example.com",
		passes:   map[string]string{"a port": `{"spec":{"listeners":[{"name":"a","port":8080,"protocol":"HTTP","hostname":"a.old.example.com"}]}}`},
		refused:  map[string]string{`{"spec":{"gatewayClassName":"older"}}`: "must not have gateway class older"},
	},
	"PersistentVolumeClaim": {
		manifest: "{apiVersion: v1, kind: PersistentVolumeClaim, spec: {storageClassName: narrowed-old, volumeName: narrowed-old, selector: {matchLabels: {a: b}}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
		refusal:  "must not choose an existing volume",
		phase:    "Bound",
		passes: map[string]string{
			"its size":                `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`,
			"a class of the new list": `{"spec":{"volumeAttributesClassName":"new"}}`,
		},
		refused: map[string]string{`{"spec":{"volumeAttributesClassName":"older"}}`: "must not have attributes class older"},
	},
	"ResourceClaim": {
		manifest: "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: old}}]}}}",
		refusal:  "must not request device class old",
	},
}

// TestNarrowed checks that narrower lists do not stop existing objects that use names which are no longer
// listed: the API server accepts every change of other fields, whoever sends it, and the deletion. It
// refuses a change of the field, and another object with the same value.
func TestNarrowed(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	serve(t, restConfig, testcrds.GatewayAPI())
	makeAll(t, admin, strings.Split(narrowedTenant, "---\n"))
	tenant := inNamespace(t, restConfig, "narrowed", "tenant")
	named := func(c narrowedCase, name string) *unstructured.Unstructured {
		u := parse(t, c.manifest)
		u.SetNamespace("narrowed")
		u.SetName(name)
		u.SetFinalizers([]string{"example.com/old"})
		return u
	}
	for kind, c := range old {
		u := named(c, "old")
		testwait.For(t, "the wide lists, and the rights and the account of the tenant", patience, func() (bool, string) {
			// A tenant adds no finalizers.
			without := u.DeepCopy()
			without.SetFinalizers(nil)
			err := tenant.Create(t.Context(), without, client.DryRunAll)
			return err == nil, fmt.Sprintf("%s: %v", kind, err)
		})
		if err := admin.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = admin.Patch(context.WithoutCancel(t.Context()), u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
		testwait.For(t, "the phase of the object", patience, func() (bool, string) {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
				t.Fatal(err)
			}
			phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
			return c.phase == "" || phase == c.phase, phase
		})
	}
	parameters := parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: narrowed}}")
	if err := admin.Patch(t.Context(), parameters, client.RawPatch(types.MergePatchType, []byte(narrowedTo))); err != nil {
		t.Fatal(err)
	}
	for kind, c := range old {
		// The port of the old Service is in use.
		c.manifest = strings.Replace(c.manifest, ", nodePort: 30700", "", 1)
		u := named(c, "new")
		u.SetFinalizers(nil)
		testwait.For(t, "the narrow lists", patience, func() (bool, string) {
			err := tenant.Create(t.Context(), u.DeepCopy(), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), c.refusal), fmt.Sprintf("%s: %v, want %q", kind, err, c.refusal)
		})
	}
	for kind, c := range old {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			narrowedObject{named(c, "old"), c, tenant}.check(t, restConfig)
		})
	}
}

type narrowedObject struct {
	object *unstructured.Unstructured
	narrowedCase
	tenant client.Client
}

// kubernetesControllers are accounts of Kubernetes that write the metadata of their own objects and of
// Pods.
var kubernetesControllers = []string{"generic-garbage-collector", "job-controller", "replicaset-controller", "statefulset-controller", "daemon-set-controller", "pvc-protection-controller"}

func (n narrowedObject) check(t *testing.T, restConfig *rest.Config) {
	t.Helper()
	kind := n.object.GetKind()
	merge := func(as client.Client, change string) error {
		return as.Patch(t.Context(), n.object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
	}
	for what, change := range map[string]string{
		"a label": `{"metadata":{"labels":{"x":"y"}}}`, "an annotation": `{"metadata":{"annotations":{"x":"y"}}}`, "no finalizer": `{"metadata":{"finalizers":null}}`,
	} {
		if err := merge(n.tenant, change); err != nil {
			t.Errorf("%s of the tenant: %v", what, err)
		}
		for _, name := range kubernetesControllers {
			as := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:" + name, Groups: []string{"system:masters", "system:authenticated"}})
			if err := merge(as, change); err != nil {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(n.passes)) {
		if err := n.patch(t, what, n.passes[what]); err != nil {
			t.Errorf("%s of an older object is refused: %v; if a new rule is about this change, name another one in passes", what, err)
		}
	}
	for change, want := range n.refused {
		if err := n.patch(t, "", change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s of %s: got %v, want a refusal with %q", change, kind, err, want)
		}
	}
	if err := n.tenant.Delete(t.Context(), n.object.DeepCopy()); err != nil {
		t.Errorf("deletion: %v", err)
	}
	if err := n.tenant.Patch(t.Context(), n.object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Errorf("the last finalizer: %v", err)
	}
}

// patch makes a change as the tenant, of the subresource that the first word names, if it does.
func (n narrowedObject) patch(t *testing.T, what, change string) error {
	t.Helper()
	kind := types.StrategicMergePatchType
	if strings.Contains(n.object.GetAPIVersion(), "gateway") {
		kind = types.MergePatchType
	}
	patch := client.RawPatch(kind, []byte(change))
	subresource, _, _ := strings.Cut(what, " ")
	switch subresource {
	case "scale":
		scale := parse(t, "{apiVersion: autoscaling/v1, kind: Scale}")
		return n.tenant.SubResource("scale").Patch(t.Context(), n.object.DeepCopy(), patch, client.DryRunAll, client.WithSubResourceBody(scale))
	case "status", "resize", "ephemeralcontainers":
		return n.tenant.SubResource(subresource).Patch(t.Context(), n.object.DeepCopy(), patch, client.DryRunAll)
	}
	return n.tenant.Patch(t.Context(), n.object.DeepCopy(), patch, client.DryRunAll)
}

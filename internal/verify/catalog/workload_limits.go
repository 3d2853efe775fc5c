package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// imageDigest is the digest of the images of attacks, which no node runs.
const imageDigest = "@sha256:0000000000000000000000000000000000000000000000000000000000000000"

// readLimits reads the limits of the tenant's workloads. The objects of attacks comply with all limits
// except the limit that the attack tests, so that no other limit refuses them.
func (e *Scenario) readLimits(ctx context.Context) {
	for field, into := range map[string]any{"workloads": &e.limits.Workloads, "network": &e.limits.Network, "storage": &e.limits.Storage} {
		if content, set := e.policy(ctx, field); set {
			// Fields of later versions are ignored.
			_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, into)
		}
	}
	parameters := object(v1alpha1.GroupVersion.String(), "TenantParameters", e.Namespace, v1alpha1.ParametersName, nil)
	if e.Admin.Get(ctx, keyOf(parameters), parameters) == nil {
		content, _, _ := unstructured.NestedMap(parameters.Object, "spec", "selectedClasses")
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &e.selectedClasses)
	}
	e.hostInUse = e.findHost(ctx)
	if e.Repository != nil {
		e.runsBy = e.findWorkload(ctx)
		e.takeover = e.findTakeover(ctx)
	}
}

// findHost returns a host without a wildcard of an Ingress or a route in the tenant's namespace, or "". A
// policy of the fleet may allow the tenant no other hosts.
func (e *Scenario) findHost(ctx context.Context) string {
	for _, kind := range [][2]string{{"networking.k8s.io/v1", "Ingress"}, {"gateway.networking.k8s.io/v1", "HTTPRoute"}, {"gateway.networking.k8s.io/v1", "GRPCRoute"}} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind[0])
		list.SetKind(kind[1] + "List")
		if e.Admin.List(ctx, list, client.InNamespace(e.Namespace)) != nil {
			continue // the kind is not served
		}
		for _, u := range list.Items {
			hosts, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "hostnames")
			rules, _, _ := unstructured.NestedSlice(u.Object, "spec", "rules")
			for _, rule := range rules {
				fields, _ := rule.(map[string]any)
				host, _ := fields["host"].(string)
				hosts = append(hosts, host)
			}
			for _, host := range hosts {
				if host != "" && !strings.Contains(host, "*") {
					return host
				}
			}
		}
	}
	return ""
}

// container returns a container that complies with the limits of images.
func (e *Scenario) container() map[string]any {
	repository, policy := "images.example.com/canary", "IfNotPresent"
	if images := e.limits.Workloads.Images; images != nil {
		if len(images.Registries) > 0 {
			repository = strings.NewReplacer("**", "canary", "*", "canary").Replace(string(images.Registries[0]))
		}
		if len(images.PullPolicies) > 0 {
			policy = images.PullPolicies[0]
		}
	}
	return map[string]any{"name": "canary", "image": repository + ":1" + imageDigest, "imagePullPolicy": policy, "resources": fewResources()}
}

// keepLimits adds the fields that the tenant's limits require to the spec of a Pod.
func (e *Scenario) keepLimits(spec map[string]any) {
	limits := &e.limits.Workloads
	if limits.Nodes != nil && len(limits.Nodes.Selector) > 0 {
		selector := map[string]any{}
		for key, value := range limits.Nodes.Selector {
			selector[key] = string(value)
		}
		spec["nodeSelector"] = selector
	}
	if limits.AutomountTokens == v1alpha1.AutomountForbidden {
		spec["automountServiceAccountToken"] = false
	}
}

// firstOf returns a name that a list allows, or otherwise if the list is not set.
func firstOf(names *v1alpha1.AllowedNames, otherwise string) string {
	if names == nil || len(names.Allowed) == 0 {
		return otherwise
	}
	return strings.ReplaceAll(string(names.Allowed[0]), "*", "canary")
}

// firstClass returns a class that a limit allows by its name or, if it has no names, by its labels, and ""
// if there is none.
func firstClass(classes *v1alpha1.AllowedClasses, selected []string) string {
	if classes == nil {
		return ""
	}
	otherwise := ""
	if len(selected) > 0 {
		otherwise = selected[0]
	}
	return firstOf(&classes.AllowedNames, otherwise)
}

// hardenedPod returns a Pod that Pod Security admission accepts at every level, with fields in
// its spec.
func hardenedPod(id string, fields map[string]any) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		container := e.container()
		container["securityContext"] = harmlessContainer()
		spec := map[string]any{
			"automountServiceAccountToken": false,
			"securityContext":              map[string]any{"runAsNonRoot": true, "runAsUser": int64(65532), "seccompProfile": map[string]any{"type": "RuntimeDefault"}},
			"containers":                   []any{container},
		}
		e.keepLimits(spec)
		for key, value := range fields {
			spec[key] = value
		}
		return object("v1", "Pod", e.Namespace, name(id), map[string]any{"spec": spec})
	}
}

// runs returns an attack that creates Pods, each with one of the fields that what describes, and sends further
// requests.
func runs(id string, what []string, fields []map[string]any, further ...request) func(context.Context, *Scenario) Finding {
	var pods []func(*Scenario) *unstructured.Unstructured
	var all []request
	for i := range fields {
		pods = append(pods, hardenedPod(id, fields[i]))
		all = append(all, request{what: what[i], aimed: creating(pods[i]), own: creating(hardenedPod(id, nil))})
	}
	return runsPods(pods, append(all, further...)...)
}

// gated returns a hardened Pod that no scheduler assigns to a node.
func gated(id string, fields map[string]any) func(*Scenario) *unstructured.Unstructured {
	fields["schedulingGates"] = gates()
	return hardenedPod(id, fields)
}

// gates returns the scheduling gates that keep a Pod off every node.
func gates() []any { return []any{map[string]any{"name": "tenure.dev/attack"}} }

// alsoByGit registers an attack through the API, and the same attack with a canary of the kind in the
// tenant's repository.
func alsoByGit(register func(...Attack), kind string, canary func(*Scenario) *unstructured.Unstructured, a Attack) {
	register(a)
	a.Owners = OwnersNever
	register(deliversManifests(a, kind, canary, ownConfigMap(strings.ToLower(a.ID))))
}

func addSystemPriority(register func(...Attack)) {
	podsAlsoByGit(register, gated("w7", map[string]any{"priorityClassName": "system-cluster-critical"}), Attack{
		ID: "W7", Via: API, Owners: OwnersWithin,
		Kinds:    everyPod,
		Slow:     true,
		Title:    "runs a Pod with a priority of Kubernetes' own components, which preempts the Pods of others",
		Controls: []string{"policy on Pods"},
		Fix:      Fix{Advice: "allow tenants only the priority classes that you choose for them, with a ValidatingAdmissionPolicy on Pods and their templates, or with a quota that counts the classes system-node-critical and system-cluster-critical"},
		Run: runs("w7", []string{"run a Pod before the components of every node", "run a Pod before the components of the cluster"},
			[]map[string]any{{"priorityClassName": "system-node-critical"}, {"priorityClassName": "system-cluster-critical"}}),
	})
}

func addForeignNodes(register func(...Attack)) {
	podsAlsoByGit(register, gated("w10", map[string]any{"tolerations": []any{map[string]any{"operator": "Exists"}}}), Attack{
		ID: "W10", Via: API, Owners: OwnersWithin,
		Kinds:    append([]string{"Pod/status"}, everyPod...),
		Slow:     true,
		Title:    "runs a Pod on nodes that are reserved for others, or keeps the Pods of others off nodes",
		Controls: []string{"policy on Pods"},
		Fix:      Fix{Advice: "refuse Pods of tenants with spec.nodeName, with tolerations of other tenants' taints, and with affinities to the Pods of other namespaces, with a ValidatingAdmissionPolicy on Pods and their templates; give the tenant's role no write verb on pods/status"},
		Run: runs("w10", []string{"run a Pod on a node of its choice, whatever the taints of the node", "run a Pod that tolerates every taint", "run a Pod on the nodes of the control plane",
			"keep the Pods of all namespaces from the nodes of a zone, by an anti-affinity"},
			[]map[string]any{
				{"nodeName": "control-plane"},
				{"tolerations": []any{map[string]any{"operator": "Exists"}}},
				{"tolerations": []any{map[string]any{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}}},
				{"affinity": map[string]any{"podAntiAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{
					"labelSelector": map[string]any{}, "namespaceSelector": map[string]any{}, "topologyKey": "topology.kubernetes.io/zone",
				}}}}},
			},
			request{what: "reserve a place on a node of its choice by the status of a waiting Pod", aimed: func(ctx context.Context, e *Scenario) error {
				return e.forgeStatus(ctx, gated("w10", map[string]any{})(e), `{"status":{"nominatedNodeName":"control-plane"}}`)
			}}),
	})
}

func addNodePorts(register func(...Attack)) {
	podsAlsoByGit(register, openingPort(map[string]any{"schedulingGates": gates()}), Attack{
		ID: "W11", Via: API, Owners: OwnersWithin,
		Kinds:      slices.Concat(everyPod, []string{"ResourceClaim"}),
		Title:      "uses the network of nodes by a port or a probe, or has devices and image volumes outside of the tenant's lists",
		Controls:   []string{"Pod Security admission at baseline or restricted", "policy on Pods and claims"},
		References: []string{"MTB CPI-5", "Kubernetes: Pod Security Standards, host probes"},
		Fix:        Fix{Advice: "label the tenant's namespaces pod-security.kubernetes.io/enforce: restricted (or baseline), which forbids hostPort and, unless enforce-version is older than v1.34, the addresses of probes, and limit device classes and images with a ValidatingAdmissionPolicy on Pods and ResourceClaims", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}},
		Run: func(ctx context.Context, e *Scenario) Finding {
			return e.outsideOfLists()(ctx, e)
		},
	})
}

// openingPort returns a Pod with fields in its spec that opens the port of a kubelet on its node.
func openingPort(fields map[string]any) func(*Scenario) *unstructured.Unstructured {
	return onNetwork(fields, "ports", []any{map[string]any{"containerPort": int64(10250), "hostPort": int64(10250)}})
}

// probing returns a Pod with a probe for which the kubelet connects to the metadata service of a cloud. The
// kubelet connects from the network of the node, which NetworkPolicies do not limit.
func probing() func(*Scenario) *unstructured.Unstructured {
	return onNetwork(nil, "livenessProbe", map[string]any{"httpGet": map[string]any{"host": "169.254.169.254", "port": int64(80)}})
}

// onNetwork returns a Pod with fields in its spec and a field in its containers.
func onNetwork(fields map[string]any, field string, value any) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		u := hardenedPod("w11", fields)(e)
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "containers")
		for _, c := range containers {
			if container, ok := c.(map[string]any); ok {
				container[field] = value
			}
		}
		_ = unstructured.SetNestedSlice(u.Object, containers, "spec", "containers")
		return u
	}
}

// outsideOfLists returns the requests of W11. A list that is not set allows everything.
func (e *Scenario) outsideOfLists() func(context.Context, *Scenario) Finding {
	own := creating(hardenedPod("w11", nil))
	onNode, probed := openingPort(nil), probing()
	pods := []func(*Scenario) *unstructured.Unstructured{onNode, probed}
	all := []request{
		{what: "open the port of a kubelet on a node", aimed: creating(onNode), own: own},
		{what: "have the kubelet connect to an address of its choice, by a probe", aimed: creating(probed), own: own},
	}
	if images := e.limits.Workloads.Images; images != nil && (len(images.Registries) > 0 || images.RegistryExpression != "") {
		foreign := hardenedPod("w11", map[string]any{"volumes": []any{map[string]any{"name": "image", "image": map[string]any{"reference": "images.tenure-canary.example/volume:1" + imageDigest, "pullPolicy": e.container()["imagePullPolicy"]}}}})
		pods = append(pods, foreign)
		all = append(all, request{what: "mount an image of any registry", aimed: creating(foreign), own: own})
	}
	if classes := e.limits.Workloads.DeviceClasses; classes != nil {
		claim := func(class string) func(*Scenario) *unstructured.Unstructured {
			return func(e *Scenario) *unstructured.Unstructured {
				requests := []any{map[string]any{"name": "device", "exactly": map[string]any{"deviceClassName": class}}}
				return object("resource.k8s.io/v1", "ResourceClaim", e.Namespace, name("w11"), map[string]any{"spec": map[string]any{"devices": map[string]any{"requests": requests}}})
			}
		}
		r := request{what: "claim a device of any class", aimed: creating(claim("tenure-canary.example"))}
		if class := firstClass(classes, e.selectedClasses.DeviceClasses); class != "" {
			r.own = creating(claim(class))
		}
		all = append(all, r)
	}
	return runsPods(pods, all...)
}

// forgeStatus patches the status of an object as the tenant, in a dry run. An admin creates the object, but
// only if the tenant has the right to write such a status.
func (e *Scenario) forgeStatus(ctx context.Context, u *unstructured.Unstructured, change string) error {
	patch := func() error {
		return e.As.SubResource("status").Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
	}
	if err := patch(); !apierrors.IsNotFound(err) {
		return err
	}
	if err := e.Admin.Create(ctx, u); err != nil {
		// The error is not wrapped, so that it is not taken for a refusal of the attack.
		return fmt.Errorf("cannot make a %s for the tenant: %s", u.GetKind(), firstLine(err.Error()))
	}
	defer e.remove(u)
	return patch()
}

func addForeignAddress(register func(...Attack)) {
	service := func(fields map[string]any) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			spec := map[string]any{"ports": []any{map[string]any{"port": int64(443)}}, "selector": map[string]any{"app": "canary"}}
			for key, value := range fields {
				spec[key] = value
			}
			return object("v1", "Service", e.Namespace, name("w4"), map[string]any{"spec": spec})
		}
	}
	balanced := func(annotations map[string]string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			u := service(nil)(e)
			u.SetAnnotations(annotations)
			return u
		}
	}
	gateway := func(addresses ...any) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			u := object(gatewayAPI+"v1", "Gateway", e.Namespace, name("w4"), map[string]any{"spec": gatewaySpec(ownHost(e))})
			if len(addresses) > 0 {
				_ = unstructured.SetNestedSlice(u.Object, addresses, "spec", "addresses")
			}
			return u
		}
	}
	own := creating(service(nil))
	alsoByGit(register, "Service", service(map[string]any{"externalIPs": []any{"198.51.100.7"}}), Attack{
		ID: "W4", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"Gateway", "Service", "Service/status"},
		Slow:       true,
		Title:      "takes over an address of others with a Service, or opens a port on every node",
		Controls:   []string{"policy on Services"},
		References: []string{"CVE-2020-8554", "MTB CPI-5"},
		Fix:        Fix{Advice: "allow tenants the types of Services that they need and no spec.externalIPs, spec.loadBalancerIP or annotations that take an address or share a load balancer, with a ValidatingAdmissionPolicy on Services or, for the addresses alone, with the admission plugin DenyServiceExternalIPs"},
		Run: requests(
			request{what: "take the traffic of all Pods to an address outside of the cluster", aimed: creating(service(map[string]any{"externalIPs": []any{"198.51.100.7"}}), service(nil)), own: own},
			request{what: "take an address by the load balancer of a Service", aimed: creating(service(map[string]any{"type": "LoadBalancer", "loadBalancerIP": "198.51.100.7"}), service(nil)), own: own},
			request{what: "take an address by an annotation for the load balancer of a Service", aimed: creating(func(e *Scenario) *unstructured.Unstructured {
				u := service(map[string]any{"type": "LoadBalancer"})(e)
				u.SetAnnotations(map[string]string{"metallb.io/loadBalancerIPs": "198.51.100.7"})
				return u
			}, service(nil)), own: own},
			request{what: "share the address of a load balancer with any namespace", own: creating(balanced(nil)), aimed: creating(balanced(map[string]string{"metallb.io/allow-shared-ip": "shared"}), service(nil))},
			request{what: "take over a load balancer by its identifier", own: creating(balanced(nil)), aimed: creating(balanced(map[string]string{"loadbalancer.openstack.org/load-balancer-id": "canary"}), service(nil))},
			request{what: "open a port on every node", aimed: creating(service(map[string]any{"type": "NodePort"}), service(nil)), own: own},
			request{what: "take the traffic to an address with the status of a Service", aimed: func(ctx context.Context, e *Scenario) error {
				return e.forgeStatus(ctx, service(map[string]any{"type": "LoadBalancer"})(e), `{"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.7"}]}}}`)
			}},
			request{what: "take an address by a Gateway, for which its controller makes a Service", aimed: creating(gateway(map[string]any{"type": "IPAddress", "value": "198.51.100.7"}), gateway()), own: creating(gateway())},
			request{what: "lead a proxy of the platform to any name", aimed: creating(service(map[string]any{"type": "ExternalName", "externalName": "metadata.tenure-canary.example"}), service(nil)), own: own},
		),
	})
}

// ingress returns an Ingress of the tenant for a host.
func ingress(host func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		backend := map[string]any{"service": map[string]any{"name": "canary", "port": map[string]any{"number": int64(80)}}}
		path := map[string]any{"path": "/", "pathType": "Prefix", "backend": backend}
		spec := map[string]any{"rules": []any{map[string]any{"host": host(e), "http": map[string]any{"paths": []any{path}}}}}
		if class := firstClass(e.limits.Network.IngressClasses, e.selectedClasses.IngressClasses); class != "" {
			spec["ingressClassName"] = class
		}
		return object("networking.k8s.io/v1", "Ingress", e.Namespace, name("w5"), map[string]any{"spec": spec})
	}
}

// ownHost returns a host that the tenant may have.
func ownHost(e *Scenario) string {
	return firstOf(e.limits.Network.Hosts, cmp.Or(e.hostInUse, "w5.tenure-canary.example"))
}

func addForeignHosts(register func(...Attack)) {
	wildcard := func(*Scenario) string { return "*.tenure-canary.example" }
	own := ownHost
	const what = "take the requests for all hosts below a domain that it shares with others"
	all := []request{{what: what, aimed: creating(ingress(wildcard), ingress(own)), own: creating(ingress(own))}}
	for _, route := range []struct {
		version, kind string
		spec          func(host string) map[string]any
	}{
		{"v1", "HTTPRoute", hostnames}, {"v1", "GRPCRoute", hostnames}, {"v1alpha2", "TLSRoute", hostnames},
		{"v1", "Gateway", gatewaySpec},
	} {
		of := func(host func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
			return func(e *Scenario) *unstructured.Unstructured {
				return object(gatewayAPI+route.version, route.kind, e.Namespace, name("w5"), map[string]any{"spec": route.spec(host(e))})
			}
		}
		all = append(all, request{what: what + ", by a " + route.kind, aimed: creating(of(wildcard), of(own)), own: creating(of(own))})
	}
	alsoByGit(register, "Ingress", ingress(wildcard), Attack{
		ID: "W5", Via: API, Owners: OwnersWithin,
		Kinds:    []string{"GRPCRoute", "Gateway", "HTTPRoute", "Ingress", "TLSRoute"},
		Slow:     true,
		Title:    "receives requests for the hosts of other tenants, with a wildcard",
		Controls: []string{"policy on Ingresses, Gateways and routes"},
		Fix:      Fix{Advice: "give each tenant a list of hosts, without a wildcard that matches the hosts of others, with a ValidatingAdmissionPolicy on Ingresses, Gateways and routes"},
		Run:      requests(all...),
	})
}

// gatewayAPI is the group of the Gateway API, before a version.
const gatewayAPI = "gateway.networking.k8s.io/"

// gatewaySpec returns the spec of a Gateway that listens for a host.
func gatewaySpec(host string) map[string]any {
	listener := map[string]any{"name": "http", "port": int64(80), "protocol": "HTTP", "hostname": host}
	return map[string]any{"gatewayClassName": "canary", "listeners": []any{listener}}
}

// hostnames returns the spec of a route with a host.
func hostnames(host string) map[string]any {
	return map[string]any{"hostnames": []any{host}, "rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": "canary", "port": int64(80)}}}}}
}

func addForeignVolume(register func(...Attack)) {
	claim := func(fields map[string]any) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			spec := map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Mi"}}}
			if class := firstClass(e.limits.Storage.Classes, e.selectedClasses.StorageClasses); class != "" {
				spec["storageClassName"] = class
			}
			for key, value := range fields {
				spec[key] = value
			}
			return object("v1", "PersistentVolumeClaim", e.Namespace, name("w6"), map[string]any{"spec": spec})
		}
	}
	own := creating(claim(nil))
	named := claim(map[string]any{"volumeName": "other-tenants-volume"})
	// capacity has no topology, so that no node is in it.
	capacity := func(e *Scenario) *unstructured.Unstructured {
		return object("storage.k8s.io/v1", "CSIStorageCapacity", e.Namespace, name("w6"), map[string]any{"storageClassName": name("w6"), "capacity": "1Ti"})
	}
	// stateful sends a request for a StatefulSet with a claim, and then for the claim as the StatefulSet's
	// controller.
	stateful := func(claim func(*Scenario) *unstructured.Unstructured) func(context.Context, *Scenario) error {
		return func(ctx context.Context, e *Scenario) error {
			set := workloads[slices.IndexFunc(workloads, func(w workload) bool { return w.kind == "StatefulSet" })]
			u, made := set.of(hardenedPod("w6", nil)(e)), claim(e)
			template := map[string]any{"metadata": map[string]any{"name": "data"}, "spec": made.Object["spec"]}
			_ = unstructured.SetNestedSlice(u.Object, []any{template}, "spec", "volumeClaimTemplates")
			if err := e.tryCreate(ctx, u); err != nil {
				return err
			}
			return e.creates(ctx, set.controller, made)
		}
	}
	// No Pod Security level refuses the volume of the driver.
	var pods []func(*Scenario) *unstructured.Unstructured
	var mounts []request
	for _, mount := range []struct {
		what   string
		volume map[string]any
	}{
		{"mount the volume of another tenant by its address", map[string]any{"nfs": map[string]any{"server": "198.51.100.7", "path": "/other"}}},
		{"mount the volume of another tenant by its address, with a CSI driver", map[string]any{"csi": map[string]any{
			"driver": "nfs.csi.k8s.io", "volumeAttributes": map[string]any{"server": "198.51.100.7", "share": "/other"},
		}}},
	} {
		mount.volume["name"] = "data"
		pod := hardenedPod("w6", map[string]any{"volumes": []any{mount.volume}})
		pods = append(pods, pod)
		mounts = append(mounts, request{what: mount.what, own: creating(hardenedPod("w6", nil)), aimed: creating(pod)})
	}
	alsoByGit(register, "PersistentVolumeClaim", named, Attack{
		ID: "W6", Via: API, Owners: OwnersWithin,
		Kinds:    slices.Concat(everyPod, []string{"CSIStorageCapacity", "PersistentVolumeClaim", "PersistentVolumeClaim/status"}),
		Title:    "claims a volume that was made for another tenant, or mounts it by its address; or changes the size of a volume or the capacity of storage by which Kubernetes counts",
		Controls: []string{"policy on PersistentVolumeClaims", "policy on the volumes of Pods, and for those without a CSI driver Pod Security admission at restricted", "RBAC, or a policy, on the status of PersistentVolumeClaims and on CSIStorageCapacities"},
		Fix:      Fix{Advice: "refuse claims of tenants with spec.volumeName, spec.selector, an empty storageClassName and the annotation volume.beta.kubernetes.io/storage-class, with a ValidatingAdmissionPolicy on PersistentVolumeClaims, and label the tenant's namespaces pod-security.kubernetes.io/enforce: restricted, which forbids volumes with an address, and refuse CSI volumes of Pods with a server or a share in volumeAttributes; give the tenant's role no write verb on persistentvolumeclaims/status and csistoragecapacities"},
		Run: runsPods(pods, append(mounts,
			request{what: "claim a volume by its name", aimed: creating(named), own: own},
			request{what: "claim a volume by its name, by a StatefulSet whose controller makes the claim", aimed: stateful(named), own: stateful(claim(nil))},
			request{what: "claim a volume by its labels", aimed: creating(claim(map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"team": "other"}}})), own: own},
			request{what: "claim a volume that has no class", aimed: creating(claim(map[string]any{"storageClassName": ""})), own: own},
			request{what: "claim a volume that has no class, by the older annotation", own: own, aimed: creating(func(e *Scenario) *unstructured.Unstructured {
				u := claim(nil)(e)
				u.SetAnnotations(map[string]string{corev1.BetaStorageClassAnnotation: ""})
				return u
			})},
			request{what: "use more storage than its quota counts, by the size of a volume in the status of a claim", aimed: func(ctx context.Context, e *Scenario) error {
				return e.forgeStatus(ctx, claim(nil)(e), `{"status":{"capacity":{"storage":"1Ki"}}}`)
			}},
			request{what: "mislead the scheduler, which places the Pods of all tenants, about the capacity of storage", aimed: creating(capacity)},
		)...),
	})
}

func addForgedEndpoints(register func(...Attack)) {
	slice := func(e *Scenario) *unstructured.Unstructured {
		u := object("discovery.k8s.io/v1", "EndpointSlice", e.Namespace, name("w9"), map[string]any{
			"addressType": "IPv4",
			"endpoints":   []any{map[string]any{"addresses": []any{"198.51.100.7"}}},
			"ports":       []any{map[string]any{"port": int64(443)}},
		})
		u.SetLabels(map[string]string{"kubernetes.io/service-name": name("w9")})
		return u
	}
	endpoints := func(e *Scenario) *unstructured.Unstructured {
		return object("v1", "Endpoints", e.Namespace, name("w9"), map[string]any{"subsets": []any{map[string]any{
			"addresses": []any{map[string]any{"ip": "198.51.100.7"}}, "ports": []any{map[string]any{"port": int64(443)}},
		}}})
	}
	alsoByGit(register, "EndpointSlice", slice, Attack{
		ID: "W9", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"EndpointSlice", "Endpoints", "Pod/status"},
		Title:      "points a Service at an address of others, which bypasses their network policies",
		Controls:   []string{"RBAC", "policy on Endpoints, EndpointSlices and the status of Pods"},
		References: []string{"CVE-2021-25740"},
		Fix:        Fix{Advice: "give the tenant's role no write verb on endpoints, endpointslices and pods/status", Rights: true},
		Run: requests(
			request{what: "lead a Service to any address with an EndpointSlice", aimed: creating(slice)},
			request{what: "lead a Service to any address with Endpoints", aimed: creating(endpoints)},
			request{what: "lead a Service to any address with the status of a Pod", aimed: func(ctx context.Context, e *Scenario) error {
				return e.forgeStatus(ctx, gated("w9", map[string]any{})(e), `{"status":{"podIP":"198.51.100.7","podIPs":[{"ip":"198.51.100.7"}]}}`)
			}},
		),
	})
}

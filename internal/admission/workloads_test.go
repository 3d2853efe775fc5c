package admission_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A tenant with limits of its own, and one with the limits of the profile.
const limitedTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: limited, labels: {tenure.dev/tenant: limited, tenure.dev/parameters: "true"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: unlimited, labels: {toolkit.fluxcd.io/tenant: unlimited}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: limited}
spec:
  tenant: limited
  platformNamespaces: [flux-system]
  tenants:
    workloads:
      images:
        registries: ["registry.example.com/acme/*", "registry.example.com:5000/**", "docker.io/library/nginx", "*.mirror.example.com/**"]
        pullPolicies: [Always]
        digests: Required
      priorityClasses: {allowed: ["standard*"], selector: {matchLabels: {tier: gold}}}
      runtimeClasses: {expression: "^sandbox-[a-z]+$", selector: {matchLabels: {tier: gold}}}
      deviceClasses: {allowed: [gpu], selector: {matchLabels: {tier: gold}}}
      schedulers: [batch]
      tolerations: [dedicated]
      hostPorts: ["9000-9100", "80"]
      podAnnotations: {allowed: ["cni.projectcalico.org/ipv*"]}
    network:
      services: {types: [ClusterIP, NodePort], externalIPs: ["203.0.113.0/24", "2001:db8::/32"], loadBalancerIPs: ["198.51.100.0/24"], nodePorts: ["30100-30199"], endpoints: ["203.0.113.0/24", "2001:db8::/32"], allowedAnnotations: {allowed: [load-balancer.hetzner.cloud/name]}, loadBalancerClasses: {allowed: [public]}, deniedLabels: [cloud.example.com/*], deniedAnnotations: ["*/internal-ip"], deniedLabelExpression: "^lb-[0-9]+$", deniedAnnotationExpression: "^(gcp|aws)[.]"}
      hosts: {allowed: ["*.acme.example.com", "acme.example.com"]}
      ingressClasses: {allowed: [public], selector: {matchLabels: {tier: gold}}}
      gatewayClasses: {allowed: [public], selector: {matchLabels: {tier: gold}}}
      gateways: {allowed: [gateways/shared]}
      ingressAnnotations: {allowed: ["nginx.org/*", haproxy.org/auth-secret]}
    storage: {classes: {allowed: [fast], selector: {matchLabels: {tier: gold}}}, attributesClasses: {allowed: [silver]}, volumes: {allowed: ["shop-*"]}, existingVolumes: true, copyAnnotations: {allowed: ["reflector.v1.k8s.emberstack.com/reflection-auto-*"]}}
  selectedClasses:
    priorityClasses: [premium]
    runtimeClasses: [confined]
    deviceClasses: [tpu]
    ingressClasses: [edge]
    gatewayClasses: [edge]
    storageClasses: [MANY]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: limited, labels: {tenure.dev/managed-by: manager}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: tenant, namespace: limited}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: unlimited, labels: {tenure.dev/managed-by: manager}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: tenant, namespace: unlimited}]
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: standard-jobs}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 100000
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: sandbox-gvisor}
handler: runsc
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: quiet}
value: 1
preemptionPolicy: Never
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: premium}
value: 10000
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: confined}
handler: kata
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: plain}
handler: runc`

// manyClasses returns the names of 1,000 storage classes.
func manyClasses() string {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("gold-%03d", i)
	}
	return strings.Join(names, ", ")
}

const digest = "@sha256:0123456789012345678901234567890123456789012345678901234567890123"

// limitCase is an object, and what the rules say to it in a namespace with limits and in a
// namespace with the defaults. An empty text stands for acceptance.
type limitCase struct{ what, manifest, limited, unlimited string }

// ofPods returns cases with the spec of a Pod, as a Pod and as a template.
func ofPods(what, image, pod, limited, unlimited string) []limitCase {
	spec := "containers: [{name: app, image: '" + image + "', imagePullPolicy: Always}], " + pod
	if strings.HasPrefix(pod, "containers:") {
		spec = pod
	}
	return []limitCase{
		{what + " of a Pod", "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {serviceAccountName: default, " + spec + "}}", limited, unlimited},
		{what + " of a Deployment", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {" + spec + "}}}}", limited, unlimited},
	}
}

func podCases() []limitCase {
	const good = "registry.example.com/acme/app" + digest
	var all []limitCase
	for _, c := range []struct{ what, image, pod, limited, unlimited string }{
		{"an allowed image", good, "", "", ""},
		{"a registry with a port", "registry.example.com:5000/deep/er/app:1" + digest, "", "", ""},
		{"an image of Docker Hub", "nginx:1.29" + digest, "", "", ""},
		{"an image of Docker Hub by its full name", "docker.io/nginx" + digest, "", "", ""},
		{"a registry by a star", "eu.mirror.example.com/app" + digest, "", "", ""},
		{"an image of another user of Docker Hub", "other/nginx" + digest, "", "must not use image other/nginx", ""},
		{"an image below the allowed ones", "registry.example.com/acme/deep/app" + digest, "", "must not use image registry.example.com/acme/deep/app", ""},
		{"a registry that begins alike", "registry.example.com.evil.example/acme/app" + digest, "", "must not use image registry.example.com.evil.example", ""},
		{"a registry in the place of a tag", "evil.example/registry.example.com/acme/app" + digest, "", "must not use image evil.example", ""},
		{"an address of version 6", "[::1]:5000/acme/app" + digest, "", "must not use image [::1]:5000", ""},
		{"a letter that looks alike", "registry.example.com/\u0430cme/app" + digest, "", "must not use image registry.example.com/\u0430cme/app", ""},
		{"an image without a digest", "registry.example.com/acme/app:1", "", "without a digest", ""},
		{"another pull policy", "", "containers: [{name: app, image: '" + good + "', imagePullPolicy: Never}]", "must not have imagePullPolicy Never (allowed: Always)", ""},
		{"an init container", "", "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always}], initContainers: [{name: i, image: 'evil.example/a" + digest + "', imagePullPolicy: Always}]", "must not use image evil.example/a", ""},
		{"an image volume", "", "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always}], volumes: [{name: v, image: {reference: 'evil.example/v" + digest + "', pullPolicy: Always}}]", "must not use image evil.example/v", ""},
		{"an allowed priority class", good, "priorityClassName: standard-jobs", "", ""},
		{"another priority class", good, "priorityClassName: urgent", "must not have priority class urgent (allowed: standard*, classes whose labels match the selector)", ""},
		{"a priority class of Kubernetes", good, "priorityClassName: system-cluster-critical", "must not have priority class system-cluster-critical", "must not have priority class system-cluster-critical (allowed: all but system-*)"},
		{"a priority class by its labels", good, "priorityClassName: premium", "", ""},
		{"a runtime class by its labels", good, "runtimeClassName: confined", "", ""},
		{"an allowed runtime class", good, "runtimeClassName: sandbox-gvisor", "", ""},
		{"another runtime class", good, "runtimeClassName: plain", "must not have runtime class plain (allowed: names that match ^sandbox-[a-z]+$, classes whose labels match the selector)", ""},
		{"an allowed scheduler", good, "schedulerName: batch", "", "must not have scheduler batch (allowed: default-scheduler)"},
		{"another scheduler", good, "schedulerName: mine", "must not have scheduler mine (allowed: default-scheduler, batch)", "must not have scheduler mine"},
		{"a node", good, "nodeName: control-plane-1", "must not choose node control-plane-1", "must not choose node control-plane-1"},
		{"an allowed toleration", good, "tolerations: [{key: dedicated, operator: Exists}]", "", "must not tolerate taints dedicated (allowed: node.kubernetes.io/*)"},
		{"a toleration of Kubernetes", good, "tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists}]", "", ""},
		{"a toleration of the control plane", good, "tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]", "must not tolerate taints node-role.kubernetes.io/control-plane (allowed: node.kubernetes.io/*, dedicated)", "must not tolerate"},
		{"a port of the node", good, "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always, ports: [{containerPort: 9100, hostPort: 9100}, {containerPort: 80, hostPort: 80}]}]", "", "must not open port 9100, 80 of its node in hostPort (allowed: none)"},
		{"another port of the node", good, "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always}], initContainers: [{name: i, restartPolicy: Always, image: '" + good + "', imagePullPolicy: Always, ports: [{containerPort: 9101, hostPort: 9101}]}]", "must not open port 9101 of its node in hostPort (allowed: 9000-9100, 80)", "must not open port 9101"},
		{"the network of the node", good, "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always, ports: [{containerPort: 8080}]}], hostNetwork: true", "must not open port 8080", "must not open port 8080"},
		{"probes of the Pod itself", good, "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always, ports: [{name: http, containerPort: 80}], livenessProbe: {httpGet: {path: /, port: http}}, readinessProbe: {tcpSocket: {port: 80, host: ''}}, startupProbe: {grpc: {port: 80}}, lifecycle: {postStart: {httpGet: {port: 80, host: ''}}, preStop: {sleep: {seconds: 1}}}}]", "", ""},
		{"probes of other addresses", good, "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always, livenessProbe: {httpGet: {host: 169.254.169.254, port: 80}}, readinessProbe: {tcpSocket: {host: 127.0.0.1, port: 10248}}, startupProbe: {httpGet: {host: other.example.com, port: 80}}}]", "must not have the kubelet connect to 169.254.169.254, 127.0.0.1, other.example.com from the network of the node", "must not have the kubelet connect to 169.254.169.254"},
		{"hooks to other addresses", good, "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always, lifecycle: {postStart: {httpGet: {host: a.example.com, port: 80}}, preStop: {tcpSocket: {host: b.example.com, port: 80}}}}]", "must not have the kubelet connect to a.example.com, b.example.com", "must not have the kubelet connect to a.example.com"},
		{"a probe of another address by a sidecar", good, "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always}], initContainers: [{name: i, restartPolicy: Always, image: '" + good + "', imagePullPolicy: Always, livenessProbe: {tcpSocket: {host: a.example.com, port: 80}}}]", "must not have the kubelet connect to a.example.com", "must not have the kubelet connect to a.example.com"},
		{"a probe of its node by a Pod with the network of the node", good, "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always, ports: [{containerPort: 9100}], livenessProbe: {httpGet: {host: 127.0.0.1, port: 9100}}}], hostNetwork: true", "", "must not open port 9100"},
		{"distance from its own Pods", good, "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}, topologyKey: kubernetes.io/hostname}], preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {labelSelector: {}, topologyKey: zone}}]}}", "", ""},
		{"distance from all Pods", good, "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}, namespaceSelector: {}, topologyKey: kubernetes.io/os}]}}", "must not choose or avoid nodes by the Pods of other namespaces", "must not choose or avoid nodes by the Pods of other namespaces"},
		{"distance from another tenant's Pods", good, "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}, namespaces: [other], topologyKey: kubernetes.io/os}]}}", "must not choose or avoid nodes", "must not choose or avoid nodes"},
		{"a place beside another tenant's Pods, if there is one", good, "affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {labelSelector: {}, namespaces: [other], topologyKey: kubernetes.io/os}}]}}", "must not choose or avoid nodes", "must not choose or avoid nodes"},
		{"storage at an address", good, "volumes: [{name: v, nfs: {server: 192.0.2.1, path: /exports/other}}, {name: w, emptyDir: {}}]", "", "must not mount existing storage by its address in volume v: use a claim"},
		{"a disk by its number", good, "volumes: [{name: v, awsElasticBlockStore: {volumeID: vol-1}}]", "", "must not mount existing storage by its address in volume v"},
		{"a repository that the node clones", good, "volumes: [{name: v, gitRepo: {repository: 'https://git.example.com/a'}}]", "must not have the node clone a repository in volume v: clone it in an init container", "must not have the node clone a repository in volume v"},
		{"a share by its name, through a driver", good, "volumes: [{name: v, csi: {driver: file.csi.azure.com, volumeAttributes: {ShareName: other, secretName: x}}}, {name: w, csi: {driver: secrets-store.csi.k8s.io, volumeAttributes: {secretProviderClass: x}}}]", "", "must not mount existing storage by its address in volume v: use a claim"},
		{"a server by its address, through a driver", good, "volumes: [{name: v, csi: {driver: nfs.csi.k8s.io, volumeAttributes: {server: 192.0.2.1, share: /exports/other}}}]", "", "must not mount existing storage by its address in volume v"},
		{"identities of the Pod itself", good, "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t, audience: a}}, {clusterTrustBundle: {name: a, path: b}}, {podCertificate: {signerName: example.com/a, keyType: ED25519, credentialBundlePath: c}}]}}]", "", ""},
		{"a claim of its own for each Pod", good, "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]", "", ""},
		{"a claim of its own with another class", good, "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: slow, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]", "must not have a volume with storage class slow (allowed: fast, classes whose labels match the selector)", ""},
		{"a claim of its own with a class by its labels", good, "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: gold-007, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]", "", ""},
		{"a claim of its own without a class, which gets one", good, "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]", "", ""},
		{"devices of a claim", good, "resourceClaims: [{name: a, resourceClaimTemplateName: a}]", "", ""},
		{"spread over zones", good, "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}]", "", ""},
		{"a sidecar that restarts", good, "containers: [{name: app, image: '" + good + "', imagePullPolicy: Always}], initContainers: [{name: i, restartPolicy: Always, image: '" + good + "', imagePullPolicy: Always}]", "", ""},
		{"a name with a tag and capital letters in it", "registry.example.com:5000/a__b--c/d.e:V1.2-RC_1" + digest, "", "", ""},
		{"a port that is no number", "registry.example.com:port/acme/app" + digest, "", "must not use image registry.example.com:port/acme/app", ""},
		{"another port", "registry.example.com:5001/deep/app" + digest, "", "must not use image registry.example.com:5001/deep/app", ""},
		{"a digest in the place of a tag alone", "registry.example.com/acme/app:sha256-0123" + digest, "", "", ""},
		{"a digest of another form", "registry.example.com/acme/app@sha256:0123", "", "without a digest", ""},
		{"a full address of version 6 with a registry of the list behind it", "[2001:db8::1]/registry.example.com/acme/app" + digest, "", "must not use image [2001:db8::1]/registry.example.com", ""},
		{"volumes of every harmless type", good, "volumes: [{name: a, emptyDir: {}}, {name: b, configMap: {name: x}}, {name: c, secret: {secretName: x}}, {name: d, persistentVolumeClaim: {claimName: x}}, {name: e, projected: {sources: []}}, {name: f, csi: {driver: secrets.example.com}}, {name: g, downwardAPI: {items: []}}]", "", ""},
		{"a toleration of everything", good, "tolerations: [{operator: Exists}]", "must not tolerate taints of every key", "must not tolerate taints of every key"},
	} {
		all = append(all, ofPods(c.what, c.image, c.pod, c.limited, c.unlimited)...)
	}
	for _, c := range []struct{ what, annotations, limited, unlimited string }{
		{"a network of the namespace", "k8s.v1.cni.cncf.io/networks: 'storage, blue@eth1'", "", ""},
		{"a network of the namespace limited", "k8s.v1.cni.cncf.io/networks: limited/storage", "", "must not have the annotation k8s.v1.cni.cncf.io/networks in its Pods, which reaches beyond the tenant (allowed: none; of k8s.v1.cni.cncf.io/networks, names of networks in unlimited)"},
		{"a network of another namespace", "k8s.v1.cni.cncf.io/networks: 'storage,other/storage'", "must not have the annotation k8s.v1.cni.cncf.io/networks in its Pods, which reaches beyond the tenant (allowed: cni.projectcalico.org/ipv*)", "must not have the annotation"},
		{"a network in JSON", `k8s.v1.cni.cncf.io/networks: '[{"name": "storage", "ips": ["198.51.100.7"]}]'`, "must not have the annotation", "must not have the annotation"},
		{"another network of the cluster", "v1.multus-cni.io/default-network: kube-system/host", "must not have the annotation v1.multus-cni.io/default-network", "must not have the annotation"},
		{"an address", `cni.projectcalico.org/ipAddrs: '["198.51.100.7"]'`, "must not have the annotation cni.projectcalico.org/ipAddrs", "must not have the annotation cni.projectcalico.org/ipAddrs"},
		{"a pool of addresses", `cni.projectcalico.org/ipv4pools: '["blue"]'`, "", "must not have the annotation"},
		{"an address of another plugin", "ovn.kubernetes.io/ip_address: 198.51.100.7", "must not have the annotation", "must not have the annotation"},
		{"an address in a second network", "blue.other.ovn.kubernetes.io/ip_address: 198.51.100.7", "must not have the annotation", "must not have the annotation"},
		{"a role in a cloud", "iam.amazonaws.com/role: admin", "must not have the annotation iam.amazonaws.com/role", "must not have the annotation iam.amazonaws.com/role"},
		{"a host", "dns.alpha.kubernetes.io/external: api.example.com", "must not have the annotation dns.alpha.kubernetes.io/external", "must not have the annotation"},
		{"a device", "cdi.k8s.io/gpu: nvidia.com/gpu=all", "must not have the annotation", "must not have the annotation"},
		{"ordinary annotations", "checksum/config: a, prometheus.io/scrape: 'true', sidecar.istio.io/inject: 'false', kubernetes.io/egress-bandwidth: 1M, cluster-autoscaler.kubernetes.io/safe-to-evict: 'true'", "", ""},
	} {
		for _, of := range ofPods(c.what, good, "", c.limited, c.unlimited) {
			template := strings.Contains(of.manifest, "{labels: {a: b}}")
			if template {
				of.manifest = strings.Replace(of.manifest, "{labels: {a: b}}", "{labels: {a: b}, annotations: {"+c.annotations+"}}", 1)
			} else {
				of.manifest = strings.Replace(of.manifest, "{name: x}", "{name: x, annotations: {"+c.annotations+"}}", 1)
			}
			all = append(all, of)
		}
	}
	return append(all,
		limitCase{"an image of a CronJob", "{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}, spec: {schedule: '0 0 1 1 *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: evil.example/a}]}}}}}}", "CronJob x must not use image evil.example/a", ""},
		limitCase{"a node of a PodTemplate", "{apiVersion: v1, kind: PodTemplate, metadata: {name: x}, template: {spec: {nodeName: node-1, containers: [{name: a, image: a}]}}}", "PodTemplate x must not choose node node-1", "PodTemplate x must not choose node node-1"},
	)
}

func networkCases() []limitCase {
	service := func(what, spec, limited, unlimited string) limitCase {
		return limitCase{what, "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {" + spec + ", ports: [{port: 80}]}}", limited, unlimited}
	}
	ingress := func(what, spec, limited, unlimited string) limitCase {
		return limitCase{what, "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: x}, spec: {" + spec + "}}", limited, unlimited}
	}
	rule := func(host string) string {
		return "ingressClassName: public, rules: [{" + host + "http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}]}}]"
	}
	route := func(what, spec, limited, unlimited string) limitCase {
		return limitCase{what, "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: x}, spec: {" + spec + "}}", limited, unlimited}
	}
	gateway := func(what, spec, limited, unlimited string) limitCase {
		return limitCase{what, "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: x}, spec: {" + spec + "}}", limited, unlimited}
	}
	const (
		backend  = "{service: {name: x, port: {number: 80}}}"
		listener = "{name: a, port: 80, protocol: HTTP, hostname: shop.acme.example.com}"
	)
	listeners := func(what, hostname, parent, limited, unlimited string) limitCase {
		return limitCase{what, "{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {name: x}, spec: {parentRef: {name: " + parent + ", namespace: gateways}, listeners: [{name: a, port: 80, protocol: HTTP, " + hostname + "}]}}", limited, unlimited}
	}
	older := func(what, hostname, parent, limited, unlimited string) limitCase {
		c := listeners(what, hostname, parent, limited, unlimited)
		c.manifest = strings.NewReplacer("gateway.networking.k8s.io/v1", "gateway.networking.x-k8s.io/v1", "kind: ListenerSet", "kind: XListenerSet").Replace(c.manifest)
		return c
	}
	annotated := func(what, kind, annotation, limited, unlimited string) limitCase {
		head := ", kind: " + kind + ", metadata: {name: x, annotations: {" + annotation + "}}, spec: {"
		manifest := map[string]string{
			"Service":   "{apiVersion: v1" + head + "ports: [{port: 80}]}}",
			"Ingress":   "{apiVersion: networking.k8s.io/v1" + head + rule("host: shop.acme.example.com, ") + "}}",
			"HTTPRoute": "{apiVersion: gateway.networking.k8s.io/v1" + head + "hostnames: [shop.acme.example.com]}}",
		}[kind]
		return limitCase{what, manifest, limited, unlimited}
	}
	nodePort := func(port string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: NodePort, ports: [{port: 80, nodePort: " + port + "}]}}"
	}
	slice := func(family, address string) string {
		return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: x, labels: {kubernetes.io/service-name: x}}, addressType: " + family + ", endpoints: [{addresses: ['" + address + "']}], ports: [{port: 80}]}"
	}
	return []limitCase{
		service("a Service", "selector: {a: b}", "", ""),
		service("a headless Service", "clusterIP: None", "", ""),
		{"a NodePort", nodePort("30100"), "", "must not have type NodePort (allowed: ClusterIP, LoadBalancer)"},
		{"another NodePort", nodePort("30200"), "must not open port 30200 on every node (allowed: 30100-30199)", "must not have type NodePort"},
		{"an EndpointSlice", slice("IPv4", "203.0.113.7"), "", "must not lead to the address 203.0.113.7 (allowed: none)"},
		{"an EndpointSlice of version 6", slice("IPv6", "2001:db8::7"), "", "must not lead to the address 2001:db8::7"},
		{"an EndpointSlice that leads to Pods", slice("IPv4", "10.244.0.7"), "must not lead to the address 10.244.0.7 (allowed: 203.0.113.0/24, 2001:db8::/32)", "must not lead to the address 10.244.0.7"},
		{"an EndpointSlice with a name", slice("FQDN", "internal.example.com"), "must not lead to the address internal.example.com", "must not lead to the address internal.example.com"},
		{"Endpoints", "{apiVersion: v1, kind: Endpoints, metadata: {name: x}, subsets: [{addresses: [{ip: 203.0.113.7}], ports: [{port: 80}]}]}", "", "must not lead to the address 203.0.113.7"},
		{"Endpoints that are not ready", "{apiVersion: v1, kind: Endpoints, metadata: {name: x}, subsets: [{notReadyAddresses: [{ip: 10.244.0.7}], ports: [{port: 80}]}]}", "must not lead to the address 10.244.0.7", "must not lead to the address 10.244.0.7"},
		{"Endpoints without addresses, of an election", "{apiVersion: v1, kind: Endpoints, metadata: {name: x}}", "", ""},
		service("a LoadBalancer", "type: LoadBalancer", "must not have type LoadBalancer (allowed: ClusterIP, NodePort)", ""),
		{"an ExternalName", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: ExternalName, externalName: internal.example.com}}", "must not have type ExternalName", "must not have type ExternalName"},
		service("an external address", "externalIPs: [203.0.113.7, '2001:db8::1']", "", "must not take the address 203.0.113.7, 2001:db8::1"),
		service("another external address", "externalIPs: [203.0.113.7, 10.0.0.1]", "must not take the address 10.0.0.1 in spec.externalIPs, spec.loadBalancerIP or an annotation (allowed: 203.0.113.0/24, 2001:db8::/32)", "must not take the address"),
		service("an address for load balancers", "loadBalancerIP: 198.51.100.7", "", "must not take the address 198.51.100.7"),
		service("an address for load balancers as an external one", "externalIPs: [198.51.100.7], loadBalancerIP: 198.51.100.7", "must not take the address 198.51.100.7", "must not take the address"),
		annotated("an address for load balancers in an annotation", "Service", "metallb.io/loadBalancerIPs: 198.51.100.7", "", "must not take the address 198.51.100.7 in spec.externalIPs, spec.loadBalancerIP or an annotation (allowed: none)"),
		annotated("another address in an annotation", "Service", "lbipam.cilium.io/ips: '198.51.100.7, 10.0.0.1'", "must not take the address 10.0.0.1", "must not take the address 198.51.100.7, 10.0.0.1"),
		annotated("an address in JSON in an annotation", "Service", "projectcalico.org/loadBalancerIPs: '[\"198.51.100.7\", \"10.0.0.1\"]'", "must not take the address 10.0.0.1 in", "must not take the address 198.51.100.7, 10.0.0.1 in"),
		annotated("an address that others share", "Service", "metallb.io/allow-shared-ip: dns", "must not have the annotation metallb.io/allow-shared-ip, which shares or takes over a load balancer of others: leave it out, or let the key of an address that the namespace shares begin with limited/ (allowed: load-balancer.hetzner.cloud/name)", "must not have the annotation metallb.io/allow-shared-ip"),
		annotated("an address that the namespace shares", "Service", "metallb.io/allow-shared-ip: limited/dns", "", "begin with unlimited/ (allowed: none)"),
		annotated("a key that begins alike", "Service", "metallb.universe.tf/allow-shared-ip: limited-too/dns", "must not have the annotation", "must not have the annotation"),
		annotated("an address for other namespaces", "Service", "lbipam.cilium.io/sharing-cross-namespace: '*'", "must not have the annotation lbipam.cilium.io/sharing-cross-namespace", "must not have the annotation"),
		annotated("a key within a namespace", "Service", "lbipam.cilium.io/sharing-key: dns", "", ""),
		annotated("a load balancer that exists", "Service", "loadbalancer.openstack.org/load-balancer-id: a", "must not have the annotation loadbalancer.openstack.org/load-balancer-id", "must not have the annotation"),
		annotated("a load balancer that exists, of another cloud", "Service", "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-id: a", "must not have the annotation", "must not have the annotation"),
		annotated("the name of a load balancer that the tenant may choose", "Service", "load-balancer.hetzner.cloud/name: a", "", "must not have the annotation load-balancer.hetzner.cloud/name"),
		annotated("an elastic address", "Service", "service.beta.kubernetes.io/aws-load-balancer-eip-allocations: a", "must not have the annotation", "must not have the annotation"),
		annotated("an ordinary annotation of a load balancer", "Service", "service.beta.kubernetes.io/aws-load-balancer-internal: 'true'", "", ""),
		service("an address of a load balancer", "type: LoadBalancer, loadBalancerIP: 10.0.0.1", "must not", "must not take the address 10.0.0.1"),
		{"a denied label", "{apiVersion: v1, kind: Service, metadata: {name: x, labels: {cloud.example.com/a: b}}, spec: {ports: [{port: 80}]}}", "must not have the label cloud.example.com/a", ""},
		{"a label that a denied expression matches", "{apiVersion: v1, kind: Service, metadata: {name: x, labels: {lb-12: b}}, spec: {ports: [{port: 80}]}}", "must not have the label lb-12", ""},
		{"a label that no denied expression matches", "{apiVersion: v1, kind: Service, metadata: {name: x, labels: {lb-12a: b}}, spec: {ports: [{port: 80}]}}", "", ""},
		{"an annotation that a denied expression matches", "{apiVersion: v1, kind: Service, metadata: {name: x, annotations: {aws.example.com/a: b}}, spec: {ports: [{port: 80}]}}", "must not have the annotation aws.example.com/a", ""},
		{"a denied annotation", "{apiVersion: v1, kind: Service, metadata: {name: x, annotations: {lb.example.com/internal-ip: b}}, spec: {ports: [{port: 80}]}}", "must not have the annotation lb.example.com/internal-ip", ""},

		ingress("an allowed host", rule("host: shop.acme.example.com, "), "", ""),
		ingress("another tenant's host", rule("host: shop.other.example.com, "), "must not have host shop.other.example.com (allowed: *.acme.example.com, acme.example.com)", ""),
		ingress("a host that ends alike", rule("host: shop.evilacme.example.com, "), "must not have host shop.evilacme.example.com", ""),
		ingress("a host in unicode", rule("host: '\u0430.acme.example.com', "), "a lowercase RFC 1123 subdomain must consist of", "a lowercase RFC 1123 subdomain must consist of"),
		ingress("a host in punycode", rule("host: xn--80a.acme.example.com, "), "", ""),
		ingress("a host that only looks like an allowed one", rule("host: shop.xn--cme-5cd.example.com, "), "must not have host shop.xn--cme-5cd.example.com", ""),
		ingress("a host in unicode within a label", rule("host: 'sh\u00f6p.acme.example.com', "), "a lowercase RFC 1123 subdomain must consist of", "a lowercase RFC 1123 subdomain must consist of"),
		ingress("a host with dots of another script", rule("host: 'shop\u3002acme\u3002example\u3002com', "), "a lowercase RFC 1123 subdomain must consist of", "a lowercase RFC 1123 subdomain must consist of"),
		ingress("an unicode host of a certificate", "tls: [{hosts: ['sh\u00f6p.acme.example.com']}], "+rule("host: shop.acme.example.com, "), "a lowercase RFC 1123 subdomain must consist of", "a lowercase RFC 1123 subdomain must consist of"),
		route("an unicode host of a route", "hostnames: ['sh\u00f6p.acme.example.com']", "should match", "should match"),
		annotated("an unicode host in an annotation", "Service", "external-dns.alpha.kubernetes.io/hostname: 'sh\u00f6p.other.example.com'", "must not have host sh\u00f6p.other.example.com", ""),
		annotated("an unicode dot in an annotation", "Service", "external-dns.alpha.kubernetes.io/hostname: 'other.example\u3002com/x.acme.example.com'", "must not have host other.example\u3002com/x.acme.example.com", "must not have host other.example\u3002com/x.acme.example.com"),
		annotated("an alias of every name, as an expression", "Ingress", "nginx.ingress.kubernetes.io/server-alias: '~^.*$'", "must not have host ~^.*$", "Ingress x must not have host ~^.*$"),
		annotated("an expression that ends as an allowed host", "Ingress", "nginx.ingress.kubernetes.io/server-alias: '~^.+$|x.acme.example.com'", "must not have host ~^.+$|x.acme.example.com", "must not have host ~^.+$|x.acme.example.com"),
		ingress("an allowed wildcard", rule("host: '*.acme.example.com', "), "", "must not have host *.acme.example.com (allowed: names without *)"),
		ingress("a wildcard above", rule("host: '*.example.com', "), "must not have host *.example.com", "must not have host *.example.com"),
		ingress("no host", rule(""), "must not have no host, which matches every name", ""),
		ingress("a default backend", "ingressClassName: public, defaultBackend: "+backend, "must not have no host", ""),
		ingress("a host of a certificate", "tls: [{hosts: [shop.other.example.com]}], "+rule("host: shop.acme.example.com, "), "must not have host shop.other.example.com", ""),
		ingress("another class", strings.Replace(rule("host: shop.acme.example.com, "), "public", "internal", 1), "must not have ingress class 'internal' (allowed: public, classes whose labels match the selector)", ""),
		ingress("a class by its labels", strings.Replace(rule("host: shop.acme.example.com, "), "public", "edge", 1), "", ""),
		ingress("no class", strings.Replace(rule("host: shop.acme.example.com, "), "ingressClassName: public, ", "", 1), "must not have ingress class ''", ""),
		{"a class in an annotation", "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: x, annotations: {kubernetes.io/ingress.class: internal}}, spec: {" + strings.TrimPrefix(rule("host: shop.acme.example.com, "), "ingressClassName: public, ") + "}}", "must not have ingress class 'internal'", ""},

		route("an allowed route", "hostnames: [shop.acme.example.com], parentRefs: [{name: shared, namespace: gateways}]", "", ""),
		route("a route of another tenant's host", "hostnames: [shop.acme.example.com, shop.other.example.com]", "must not have host shop.other.example.com", ""),
		route("a route without a host", "parentRefs: [{name: shared, namespace: gateways}]", "must not have no host", ""),
		route("a Gateway of another namespace", "hostnames: [shop.acme.example.com], parentRefs: [{name: mine}, {name: other, namespace: gateways}]", "must not attach to Gateway gateways/other", ""),
		route("the listeners of another namespace", "hostnames: [shop.acme.example.com], parentRefs: [{group: gateway.networking.k8s.io, kind: ListenerSet, name: theirs, namespace: other}]", "must not attach to ListenerSet other/theirs (allowed: those of limited, gateways/shared)", ""),
		route("a route of a mesh", "parentRefs: [{group: '', kind: Service, name: x}]", "", ""),
		route("a route of a mesh and of a Gateway", "parentRefs: [{group: '', kind: Service, name: x}, {name: shared, namespace: gateways}]", "must not have no host", ""),
		{"a route of packets", "{apiVersion: gateway.networking.k8s.io/v1, kind: TCPRoute, metadata: {name: x}, spec: {parentRefs: [{name: shared, namespace: gateways}], rules: [{backendRefs: [{name: x, port: 80}]}]}}", "", ""},
		{"packets of a Gateway of another namespace", "{apiVersion: gateway.networking.k8s.io/v1, kind: UDPRoute, metadata: {name: x}, spec: {parentRefs: [{name: other, namespace: gateways}], rules: [{backendRefs: [{name: x, port: 80}]}]}}", "must not attach to Gateway gateways/other", ""},
		listeners("listeners", "hostname: shop.acme.example.com", "shared", "", ""),
		listeners("listeners of every name", "", "shared", "must not have no host", ""),
		older("older listeners", "hostname: shop.acme.example.com", "shared", "", ""),
		older("older listeners of every name", "", "shared", "must not have no host", ""),
		older("older listeners of a Gateway of another namespace", "hostname: shop.acme.example.com", "other", "must not attach to Gateway gateways/other", ""),
		gateway("a Gateway that is the default of all routes", "gatewayClassName: public, defaultScope: All, listeners: ["+listener+"]", "Gateway x must not be a default Gateway, to which routes of all namespaces attach (allowed: gateways/shared)", "Gateway x must not be a default Gateway, to which routes of all namespaces attach (allowed: none)"),
		gateway("a Gateway that is no default", "gatewayClassName: public, defaultScope: None, listeners: ["+listener+"]", "", ""),
		route("a route of the default Gateways", "hostnames: [shop.acme.example.com], useDefaultGateways: All", "must not attach to all default Gateways: name a Gateway in spec.parentRefs (allowed: those of limited, gateways/shared)", ""),
		route("a route of no default Gateway", "hostnames: [shop.acme.example.com], useDefaultGateways: None", "", ""),
		{"packets of the default Gateways", "{apiVersion: gateway.networking.k8s.io/v1, kind: TCPRoute, metadata: {name: x}, spec: {useDefaultGateways: All, rules: [{backendRefs: [{name: x, port: 80}]}]}}", "must not attach to all default Gateways", ""},
		listeners("listeners of a Gateway of another namespace", "hostname: shop.acme.example.com", "other", "must not attach to Gateway gateways/other", ""),
		annotated("an allowed host in an annotation", "Service", "external-dns.alpha.kubernetes.io/hostname: shop.acme.example.com", "", ""),
		annotated("another tenant's host in an annotation", "Service", "external-dns.alpha.kubernetes.io/hostname: 'shop.acme.example.com, shop.other.example.com'", "Service x must not have host shop.other.example.com (allowed: *.acme.example.com, acme.example.com)", ""),
		annotated("a wildcard in an annotation", "Service", "external-dns.alpha.kubernetes.io/internal-hostname: '*.example.com'", "must not have host *.example.com", "must not have host *.example.com (allowed: names without *)"),
		annotated("another tenant's host in an annotation of kOps", "Service", "dns.alpha.kubernetes.io/external: shop.other.example.com", "must not have host shop.other.example.com", ""),
		annotated("an alias of an Ingress", "Ingress", "nginx.ingress.kubernetes.io/server-alias: shop.other.example.com", "Ingress x must not have host shop.other.example.com", ""),
		annotated("an annotation of a route", "HTTPRoute", "external-dns.alpha.kubernetes.io/hostname: shop.other.example.com", "HTTPRoute x must not have host shop.other.example.com", ""),
		annotated("text for the configuration of a controller", "Ingress", "nginx.ingress.kubernetes.io/configuration-snippet: 'deny all;'", "Ingress x must not have the annotation nginx.ingress.kubernetes.io/configuration-snippet, which reaches beyond the tenant (allowed: nginx.org/*, haproxy.org/auth-secret)", "must not have the annotation nginx.ingress.kubernetes.io/configuration-snippet, which reaches beyond the tenant (allowed: none)"),
		annotated("text that the tenant may write", "Ingress", "nginx.org/server-snippets: 'deny all;'", "", "must not have the annotation nginx.org/server-snippets"),
		annotated("text for another controller", "Ingress", "haproxy-ingress.github.io/config-backend: 'acl a'", "must not have the annotation haproxy-ingress.github.io/config-backend", "must not have the annotation"),
		annotated("text for another controller, by its second prefix", "Ingress", "ingress.kubernetes.io/config-backend: 'acl a'", "must not have the annotation ingress.kubernetes.io/config-backend", "must not have the annotation"),
		annotated("text for the configuration of a controller, of a Service", "Service", "haproxy.org/backend-config-snippet: 'acl a'", "Service x must not have the annotation haproxy.org/backend-config-snippet", "must not have the annotation haproxy.org/backend-config-snippet"),
		annotated("text for another controller, of a Service", "Service", "haproxy-ingress.github.io/config-backend: 'acl a'", "must not have the annotation haproxy-ingress.github.io/config-backend", "must not have the annotation"),
		annotated("the configuration of Ambassador, of a Service", "Service", "getambassador.io/config: 'kind: Mapping'", "must not have the annotation getambassador.io/config", "must not have the annotation"),
		annotated("a Secret of another namespace, of a Service", "Service", "haproxy-ingress.github.io/secure-verify-ca-secret: other/ca", "must not have the annotation haproxy-ingress.github.io/secure-verify-ca-secret", "must not have the annotation"),
		annotated("an address within the cluster, of a Service", "Service", "haproxy-ingress.github.io/auth-url: 'http://10.0.0.1/'", "must not have the annotation haproxy-ingress.github.io/auth-url", "must not have the annotation"),
		annotated("ordinary annotations of a Service", "Service", "prometheus.io/scrape: 'true', traefik.ingress.kubernetes.io/service.sticky.cookie: 'true', haproxy.org/check: 'true', cloud.google.com/neg: '{}'", "", ""),
		annotated("an alias of another controller", "Ingress", "haproxy-ingress.github.io/server-alias: shop.other.example.com", "must not have host shop.other.example.com", ""),
		annotated("aliases of Kong", "Ingress", "konghq.com/host-aliases: 'shop.acme.example.com,*.example.com'", "must not have host *.example.com", "must not have host *.example.com"),
		annotated("aliases by an expression", "Ingress", "haproxy-ingress.github.io/server-alias-regex: '.*'", "must not have the annotation haproxy-ingress.github.io/server-alias-regex", "must not have the annotation"),
		annotated("policies of its own and of another namespace", "Ingress", "nginx.example.com/policies: 'limited/a,other/b'", "must not have the annotation nginx.example.com/policies", "must not have the annotation"),
		annotated("security groups of others", "Ingress", "alb.ingress.kubernetes.io/security-groups: sg-1", "must not have the annotation alb.ingress.kubernetes.io/security-groups", "must not have the annotation"),
		annotated("a Secret of another namespace", "Ingress", "nginx.ingress.kubernetes.io/auth-tls-secret: other/ca", "must not have the annotation nginx.ingress.kubernetes.io/auth-tls-secret", "must not have the annotation"),
		annotated("a Secret of a namespace that begins alike", "Ingress", "nginx.ingress.kubernetes.io/auth-secret: limited-too/users", "must not have the annotation nginx.ingress.kubernetes.io/auth-secret", "must not have the annotation"),
		annotated("a Secret of another namespace that the tenant may name", "Ingress", "haproxy.org/auth-secret: other/users", "", "must not have the annotation haproxy.org/auth-secret"),
		annotated("a Secret of its own", "Ingress", "nginx.ingress.kubernetes.io/auth-secret: users", "", ""),
		annotated("headers of another namespace", "Ingress", "nginx.ingress.kubernetes.io/auth-proxy-set-headers: other/headers", "must not have the annotation", "must not have the annotation"),
		annotated("headers of another namespace, by the newer annotation", "Ingress", "nginx.ingress.kubernetes.io/custom-headers: other/headers", "must not have the annotation", "must not have the annotation"),
		annotated("an address within the cluster that the controller asks", "Ingress", "nginx.ingress.kubernetes.io/auth-url: 'http://web.other.svc.cluster.local/'", "must not have the annotation nginx.ingress.kubernetes.io/auth-url", "must not have the annotation nginx.ingress.kubernetes.io/auth-url"),
		annotated("one that a request chooses", "Ingress", "nginx.ingress.kubernetes.io/auth-url: 'https://$arg_host/'", "must not have the annotation", "must not have the annotation"),
		annotated("one that gets a copy of each request", "Ingress", "nginx.ingress.kubernetes.io/mirror-target: 'http://10.0.0.1$request_uri'", "must not have the annotation", "must not have the annotation"),
		annotated("one of another controller", "Ingress", "haproxy-ingress.github.io/auth-url: 'http://web.other.svc/'", "must not have the annotation", "must not have the annotation"),
		annotated("its own host", "Ingress", "nginx.ingress.kubernetes.io/auth-url: 'https://$host/oauth2/auth'", "", ""),
		annotated("an address outside of the cluster", "Ingress", "nginx.ingress.kubernetes.io/auth-url: 'https://login.example.com/oauth2/auth'", "", ""),
		annotated("a target group of others", "Ingress", "alb.ingress.kubernetes.io/actions.a: '{\"type\":\"forward\",\"targetGroupArn\":\"arn:aws:a\"}'", "must not have the annotation", "must not have the annotation"),
		annotated("a redirection", "Ingress", "alb.ingress.kubernetes.io/actions.a: '{\"type\":\"redirect\"}'", "", ""),
		annotated("a group of load balancers", "Ingress", "alb.ingress.kubernetes.io/group.name: shared", "must not have the annotation alb.ingress.kubernetes.io/group.name", "must not have the annotation"),
		annotated("a reserved address", "Ingress", "kubernetes.io/ingress.global-static-ip-name: other", "must not have the annotation kubernetes.io/ingress.global-static-ip-name", "must not have the annotation"),
		annotated("a middleware", "Ingress", "traefik.ingress.kubernetes.io/router.middlewares: other-auth@kubernetescrd", "must not have the annotation traefik.ingress.kubernetes.io/router.middlewares", "must not have the annotation"),
		annotated("an ordinary annotation", "Ingress", "nginx.ingress.kubernetes.io/rewrite-target: /api/v1", "", ""),
		gateway("a Gateway", "gatewayClassName: public, listeners: [{name: a, port: 80, protocol: HTTP, hostname: shop.acme.example.com}]", "", ""),
		gateway("a Gateway of another class", "gatewayClassName: internal, listeners: [{name: a, port: 80, protocol: HTTP, hostname: shop.acme.example.com}]", "must not have gateway class internal (allowed: public, classes whose labels match the selector)", ""),
		gateway("a Gateway of a class by its labels", "gatewayClassName: edge, listeners: [{name: a, port: 80, protocol: HTTP, hostname: shop.acme.example.com}]", "", ""),
		gateway("an address for load balancers of a Gateway", "gatewayClassName: public, addresses: [{value: 198.51.100.7}, {type: Hostname, value: x.limited.svc.cluster.local}], listeners: ["+listener+"]", "", "Gateway x must not take the address 198.51.100.7, x.limited.svc.cluster.local"),
		gateway("another address of a Gateway", "gatewayClassName: public, addresses: [{type: IPAddress, value: 10.0.0.1}], listeners: ["+listener+"]", "Gateway x must not take the address 10.0.0.1", "Gateway x must not take the address 10.0.0.1"),
		gateway("a reserved address of a Gateway", "gatewayClassName: public, addresses: [{type: NamedAddress, value: other}], listeners: ["+listener+"]", "Gateway x must not take the address other", "Gateway x must not take the address other"),
		gateway("the proxy of another Gateway", "gatewayClassName: public, addresses: [{type: Hostname, value: ingress.gateways.svc.cluster.local}], listeners: ["+listener+"]", "must not take the address ingress.gateways.svc.cluster.local", "must not take the address ingress.gateways.svc.cluster.local"),
		gateway("the load balancer of a Gateway, in the annotations of its Service", "gatewayClassName: public, infrastructure: {annotations: {loadbalancer.openstack.org/load-balancer-id: a}}, listeners: ["+listener+"]", "Gateway x must not have the annotation loadbalancer.openstack.org/load-balancer-id", "must not have the annotation"),
		gateway("an address in the annotations of the Service of a Gateway", "gatewayClassName: public, infrastructure: {annotations: {metallb.io/loadBalancerIPs: 10.0.0.1}}, listeners: ["+listener+"]", "Gateway x must not take the address 10.0.0.1", "must not take the address 10.0.0.1"),
		gateway("what the platform denies Services, of a Gateway", "gatewayClassName: public, infrastructure: {labels: {cloud.example.com/a: b}, annotations: {lb.example.com/internal-ip: b}}, listeners: ["+listener+"]", "Gateway x must not have the label cloud.example.com/a", ""),
		gateway("another tenant's host in the annotations of the Service of a Gateway", "gatewayClassName: public, infrastructure: {annotations: {external-dns.alpha.kubernetes.io/hostname: shop.other.example.com}}, listeners: ["+listener+"]", "Gateway x must not have host shop.other.example.com", ""),
		gateway("text for the configuration of a controller, in the annotations of the Service of a Gateway", "gatewayClassName: public, infrastructure: {annotations: {haproxy.org/backend-config-snippet: a}}, listeners: ["+listener+"]", "Gateway x must not have the annotation haproxy.org/backend-config-snippet", "must not have the annotation haproxy.org/backend-config-snippet"),
		annotated("a certificate of the account, of AWS", "Ingress", "alb.ingress.kubernetes.io/certificate-arn: 'arn:aws:acm:a'", "Ingress x must not have the annotation alb.ingress.kubernetes.io/certificate-arn", ""),
		annotated("a certificate of the account, of AWS, of a Service", "Service", "service.beta.kubernetes.io/aws-load-balancer-ssl-cert: 'arn:aws:acm:a'", "Service x must not have the annotation service.beta.kubernetes.io/aws-load-balancer-ssl-cert", ""),
		annotated("a certificate of the project, of GKE", "Ingress", "ingress.gcp.kubernetes.io/pre-shared-cert: other", "Ingress x must not have the annotation ingress.gcp.kubernetes.io/pre-shared-cert", ""),
		annotated("a certificate of Azure's gateway", "Ingress", "appgw.ingress.kubernetes.io/appgw-ssl-certificate: other", "Ingress x must not have the annotation appgw.ingress.kubernetes.io/appgw-ssl-certificate", ""),
		annotated("a root certificate of Azure's gateway", "Ingress", "appgw.ingress.kubernetes.io/appgw-trusted-root-certificate: other", "Ingress x must not have the annotation appgw.ingress.kubernetes.io/appgw-trusted-root-certificate", ""),
		annotated("a certificate of DigitalOcean, of a Service", "Service", "service.beta.kubernetes.io/do-loadbalancer-certificate-id: a", "Service x must not have the annotation service.beta.kubernetes.io/do-loadbalancer-certificate-id", ""),
		annotated("a certificate of Alibaba Cloud, of a Service", "Service", "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-cert-id: a", "Service x must not have the annotation service.beta.kubernetes.io/alibaba-cloud-loadbalancer-cert-id", ""),
		annotated("a certificate of OpenStack, of a Service", "Service", "loadbalancer.openstack.org/default-tls-container-ref: 'https://keys.example.com/a'", "Service x must not have the annotation loadbalancer.openstack.org/default-tls-container-ref", ""),
		annotated("Services of another namespace", "Ingress", "k8s.apisix.apache.org/svc-namespace: other", "Ingress x must not have the annotation k8s.apisix.apache.org/svc-namespace", "must not have the annotation k8s.apisix.apache.org/svc-namespace"),
		annotated("routes of Skipper", "Ingress", "zalando.org/skipper-routes: 'r: * -> <shunt>'", "Ingress x must not have the annotation zalando.org/skipper-routes", "must not have the annotation zalando.org/skipper-routes"),
		annotated("certificates by objects of the namespace", "Ingress", "networking.gke.io/managed-certificates: a, cert-manager.io/cluster-issuer: a, cert-manager.io/common-name: a, k8s.apisix.apache.org/svc-namespace: ''", "", ""),
		{"certificates of the project, in an annotation of a Gateway", "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: x, annotations: {networking.gke.io/certmap: other}}, spec: {gatewayClassName: public, listeners: [" + listener + "]}}", "Gateway x must not have the annotation networking.gke.io/certmap", ""},
		gateway("a certificate of the project, in an option of a Gateway", "gatewayClassName: public, listeners: [{name: x, port: 443, protocol: HTTPS, hostname: shop.acme.example.com, tls: {options: {networking.gke.io/pre-shared-certs: other}}}]", "Gateway x must not have the annotation networking.gke.io/pre-shared-certs", ""),
		gateway("an option of a Gateway without a certificate", "gatewayClassName: public, listeners: [{name: x, port: 443, protocol: HTTPS, hostname: shop.acme.example.com, tls: {options: {networking.gke.io/pre-shared-certs: ''}}}]", "", ""),
		gateway("ordinary annotations of the Service of a Gateway", "gatewayClassName: public, infrastructure: {labels: {team: a}, annotations: {service.beta.kubernetes.io/aws-load-balancer-internal: 'true', metallb.io/allow-shared-ip: limited/a}}, listeners: ["+listener+"]", "", "must not have the annotation metallb.io/allow-shared-ip"),
		gateway("a Gateway of every name", "gatewayClassName: public, listeners: [{name: a, port: 80, protocol: HTTP}]", "must not have no host", ""),
	}
}

func storageCases() []limitCase {
	claim := func(what, spec, limited, unlimited string) limitCase {
		return limitCase{what, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}" + spec + "}}", limited, unlimited}
	}
	annotated := func(what, class, spec, want string) limitCase {
		c := claim(what, spec, want, want)
		c.manifest = strings.Replace(c.manifest, "{name: x}", "{name: x, annotations: {volume.beta.kubernetes.io/storage-class: "+class+"}}", 1)
		return c
	}
	var templates []string
	for i := range 32 {
		templates = append(templates, fmt.Sprintf("{metadata: {name: d%d}, spec: {storageClassName: gold-9%02d, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", i, i))
	}
	copied := func(what, kind, annotation, limited, unlimited string) limitCase {
		api := "v1"
		if strings.HasPrefix(kind, "Role") {
			api = "rbac.authorization.k8s.io/v1"
		}
		manifest := "{apiVersion: " + api + ", kind: " + kind + ", metadata: {name: x, annotations: {" + annotation + "}}"
		if kind == "RoleBinding" {
			manifest += ", roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: []"
		}
		return limitCase{what, manifest + "}", limited, unlimited}
	}
	return []limitCase{
		copied("a Secret that is copied into a namespace", "Secret", "replicator.v1.mittwald.de/replicate-to: flux-system", "must not have the annotation replicator.v1.mittwald.de/replicate-to, by which a controller copies objects between namespaces (allowed: reflector.v1.k8s.emberstack.com/reflection-auto-*)", "(allowed: none) (rule tenure-copies)"),
		copied("a RoleBinding that is copied into namespaces", "RoleBinding", "replicator.v1.mittwald.de/replicate-to-matching: a=b", "RoleBinding x must not have the annotation", "RoleBinding x must not have the annotation"),
		copied("a Role that is copied into namespaces", "Role", "replicator.v1.mittwald.de/replicate-to: '.*'", "Role x must not have the annotation", "Role x must not have the annotation"),
		copied("a ConfigMap that is copied into all namespaces", "ConfigMap", "kubed.appscode.com/sync: ''", "must not have the annotation kubed.appscode.com/sync", "must not have the annotation kubed.appscode.com/sync"),
		copied("a Secret that the tenant may have copied", "Secret", "reflector.v1.k8s.emberstack.com/reflection-auto-enabled: 'true', reflector.v1.k8s.emberstack.com/reflection-auto-namespaces: '.*'", "", "must not have the annotation reflector.v1.k8s.emberstack.com/reflection-auto-"),
		copied("one that is not copied", "Secret", "reflector.v1.k8s.emberstack.com/reflection-auto-enabled: 'false'", "", ""),
		copied("one that others may copy", "Secret", "replicator.v1.mittwald.de/replication-allowed: 'true', reflector.v1.k8s.emberstack.com/reflection-allowed: 'true'", "", ""),
		copied("a copy of another namespace's Secret", "Secret", "replicator.v1.mittwald.de/replicate-from: flux-system/keys", "must not have the annotation replicator.v1.mittwald.de/replicate-from", "must not have the annotation replicator.v1.mittwald.de/replicate-from"),
		copied("a copy of a Secret whose namespace begins alike", "ConfigMap", "reflector.v1.k8s.emberstack.com/reflects: limited-too/keys", "must not have the annotation reflector.v1.k8s.emberstack.com/reflects", "must not have the annotation reflector.v1.k8s.emberstack.com/reflects"),
		copied("a copy within the namespace", "ConfigMap", "reflector.v1.k8s.emberstack.com/reflects: limited/keys", "", "must not have the annotation reflector.v1.k8s.emberstack.com/reflects"),
		copied("an account", "ServiceAccount", "replicator.v1.mittwald.de/replicate-to: flux-system", "ServiceAccount x must not have the annotation", "ServiceAccount x must not have the annotation"),
		claim("an allowed class", ", storageClassName: fast", "", ""),
		claim("another class", ", storageClassName: slow", "must not have storage class 'slow' (allowed: fast, classes whose labels match the selector)", ""),
		claim("the last of 1,000 classes by their labels", ", storageClassName: gold-999", "", ""),
		claim("none of 1,000 classes", ", storageClassName: gold-1000", "must not have storage class 'gold-1000'", ""),
		claim("the default class", "", "must not have storage class 'standard'", ""),
		claim("an allowed attributes class", ", storageClassName: fast, volumeAttributesClassName: silver", "", ""),
		claim("another attributes class", ", storageClassName: fast, volumeAttributesClassName: gold", "must not have attributes class gold (allowed: silver)", ""),
		claim("a volume by name", ", storageClassName: fast, volumeName: shop-1", "", "must not choose an existing volume"),
		claim("another volume by name", ", storageClassName: fast, volumeName: theirs", "must not choose an existing volume", "must not choose an existing volume"),
		claim("a volume by labels", ", storageClassName: fast, selector: {matchLabels: {a: b}}", "", "must not choose an existing volume"),
		claim("a volume without a class", ", storageClassName: ''", "must not have storage class ''", "must not choose an existing volume"),
		claim("a copy of another claim", ", storageClassName: fast, dataSource: {kind: PersistentVolumeClaim, name: data}", "", ""),
		claim("the content of a snapshot", ", storageClassName: fast, dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: data}", "", ""),
		claim("data of a populator", ", storageClassName: fast, dataSourceRef: {apiGroup: populators.example.com, kind: Backup, name: data}", "", ""),
		claim("a snapshot of its own namespace by name", ", storageClassName: fast, dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: data, namespace: limited}", "", ""),
		// The API server leaves out the source, unless an alpha feature is on, with which the rule refuses it.
		claim("a snapshot of another namespace", ", storageClassName: fast, dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: data, namespace: other}", "", ""),
		claim("a claim of another namespace", ", storageClassName: fast, dataSourceRef: {kind: PersistentVolumeClaim, name: data, namespace: other}", "", ""),
		annotated("a class in the older annotation", "slow", "", "must not name a storage class in the annotation volume.beta.kubernetes.io/storage-class"),
		annotated("no class in the older annotation", "''", ", storageClassName: fast", "must not name a storage class in the annotation"),
		annotated("the same class in both", "fast", ", storageClassName: fast", ""),
		{"the older annotation in a StatefulSet", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: 'registry.example.com/acme/app" + digest + "', imagePullPolicy: Always}]}}, volumeClaimTemplates: [{metadata: {name: d, annotations: {volume.beta.kubernetes.io/storage-class: slow}}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}", "StatefulSet x must not name a storage class in the annotation", "StatefulSet x must not name a storage class in the annotation"},
		{"a snapshot of another namespace in a StatefulSet", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: 'registry.example.com/acme/app" + digest + "', imagePullPolicy: Always}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {storageClassName: fast, dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: data, namespace: other}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}", "StatefulSet x must not take its data from another namespace in spec.dataSourceRef", "StatefulSet x must not take its data from another namespace in spec.dataSourceRef"},
		{"the class of a StatefulSet", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: 'registry.example.com/acme/app" + digest + "', imagePullPolicy: Always}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {storageClassName: slow, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}", "StatefulSet x must not have storage class 'slow'", ""},
		{"a StatefulSet with many of 1,000 classes", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: 'registry.example.com/acme/app" + digest + "', imagePullPolicy: Always}]}}, volumeClaimTemplates: [" + strings.Join(templates, ", ") + "]}}", "", ""},
		{"an allowed device", "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}]}}}", "", "must not request device class gpu (allowed: classes whose labels match the selector)"},
		{"a device by its labels", "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: tpu}}]}}}", "", "must not request device class tpu (allowed: classes whose labels match the selector)"},
		{"another device", "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: fpga}}]}}}", "must not request device class fpga (allowed: gpu, classes whose labels match the selector)", "must not request device class fpga"},
		{"another device as an alternative", "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: x}, spec: {spec: {devices: {requests: [{name: a, firstAvailable: [{name: b, deviceClassName: gpu}, {name: c, deviceClassName: fpga}]}]}}}}", "must not request device class fpga", "must not request device class gpu, fpga"},
	}
}

// olderListenerKind is the kind of Gateway API before 1.5 that ListenerSets have replaced.
const olderListenerKind = "xlistenersets.gateway.networking.x-k8s.io"

// olderListeners returns the definition of the kind [olderListenerKind], with the schema of ListenerSets.
func olderListeners(t *testing.T) []byte {
	t.Helper()
	for definition := range strings.SplitSeq(string(testcrds.GatewayAPI()), "---\n") {
		if strings.Contains(definition, "\n  name: listenersets.gateway.networking.k8s.io\n") {
			return []byte(strings.NewReplacer("name: listenersets.gateway.networking.k8s.io", "name: "+olderListenerKind, "group: gateway.networking.k8s.io\n  names:", "group: gateway.networking.x-k8s.io\n  names:",
				"kind: ListenerSet\n", "kind: XListenerSet\n", "listKind: ListenerSetList", "listKind: XListenerSetList", "plural: listenersets", "plural: xlistenersets", "singular: listenerset", "singular: xlistenerset").Replace(definition))
		}
	}
	t.Fatal("there is no definition of ListenerSets")
	return nil
}

// The limits hold for each kind, in a namespace with parameters and in one without.
func TestLimits(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	serve(t, restConfig, testcrds.GatewayAPI())
	serve(t, restConfig, olderListeners(t))
	makeAll(t, admin, strings.Split(strings.Replace(limitedTenant, "MANY", manyClasses(), 1), "---\n"))
	tenants := map[string]client.Client{}
	for _, namespace := range []string{"limited", "unlimited"} {
		tenants[namespace] = inNamespace(t, restConfig, namespace, "tenant")
		testwait.For(t, "the account of Pods in "+namespace, patience, func() (bool, string) {
			u := parse(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}")
			err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, u)
			return err == nil, fmt.Sprint(err)
		})
		testwait.For(t, "the rules and the rights to be in force in "+namespace, patience, func() (bool, string) {
			u := parse(t, "{apiVersion: v1, kind: PodTemplate, metadata: {name: x}, template: {spec: {nodeName: node-1, containers: [{name: a, image: a}]}}}")
			u.SetNamespace(namespace)
			err := tenants[namespace].Create(t.Context(), u, client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "(rule tenure-workloads)"), fmt.Sprint(err)
		})
	}
	var cases []limitCase
	for _, some := range [][]limitCase{podCases(), networkCases(), storageCases()} {
		cases = append(cases, some...)
	}
	for _, c := range cases {
		for namespace, want := range map[string]string{"limited": c.limited, "unlimited": c.unlimited} {
			t.Run(c.what+" in "+namespace, func(t *testing.T) {
				t.Parallel()
				u := parse(t, c.manifest)
				u.SetNamespace(namespace)
				err := tenants[namespace].Create(t.Context(), u, client.DryRunAll)
				switch {
				case want == "" && err != nil:
					t.Errorf("refused: %v", err)
				case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
					t.Errorf("got %v, want a refusal with %q", err, want)
				}
			})
		}
	}
	t.Run("nodes and tokens", func(t *testing.T) { nodesAndTokens(t, admin, restConfig) })
	t.Run("names of registries", func(t *testing.T) { registryNames(t, admin, restConfig) })
	t.Run("older objects", func(t *testing.T) { olderObjects(t, admin, tenants["limited"]) })
	t.Run("controllers", func(t *testing.T) { controllers(t, restConfig) })
	r := requester{admin: admin, account: tenants["limited"], namespace: "limited"}
	for kind, change := range map[string]string{
		"listenersets" + gatewayGroup: `{"spec":{"parentRef":{"name":"other"}}}`,
		olderListenerKind:             `{"spec":{"parentRef":{"name":"other"}}}`,
		"tcproutes" + gatewayGroup:    `{"spec":{"parentRefs":[{"name":"other","namespace":"gateways"}]}}`,
		"udproutes" + gatewayGroup:    `{"spec":{"parentRefs":[{"name":"other","namespace":"gateways"}]}}`,
	} {
		t.Run(kind, func(t *testing.T) { r.breaks(t, "tenure-hosts", kind, change) })
	}
	t.Run("subresources of Pods", func(t *testing.T) { subresources(t, admin, tenants["limited"]) })
	t.Run("addresses of Services within the cluster", func(t *testing.T) { chosenAddresses(t, admin, tenants["limited"]) })
	t.Run("a second ingress class", func(t *testing.T) { secondIngressClass(t, tenants["limited"]) })
}

// namingTenant names the registries of its images.
const namingTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: naming, labels: {tenure.dev/tenant: naming, tenure.dev/parameters: "true"}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: naming}
spec:
  tenant: naming
  platformNamespaces: [flux-system]
  tenants: {workloads: {images: {registries: [docker.io/**, localhost/**], registry: Required}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: naming, labels: {tenure.dev/managed-by: manager}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: tenant, namespace: naming}]`

// The images of a tenant that must name their registries do, also if they come from an allowed one.
func registryNames(t *testing.T, admin client.Client, restConfig *rest.Config) {
	t.Helper()
	makeAll(t, admin, strings.Split(namingTenant, "---\n"))
	tenant := inNamespace(t, restConfig, "naming", "tenant")
	create := func(image string) error {
		set := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, namespace: naming}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: '" + image + "'}]}}}}"
		return tenant.Create(t.Context(), parse(t, set), client.DryRunAll)
	}
	testwait.For(t, "the rights of the tenant", patience, func() (bool, string) {
		err := create("docker.io/library/nginx:1")
		return err == nil, fmt.Sprint(err)
	})
	for image, refused := range map[string]bool{
		"docker.io/nginx" + digest: false, "localhost/nginx": false, "nginx:1": true, "user/nginx:1": true, "user/nginx" + digest: true,
	} {
		const want = "without the name of its registry"
		if err := create(image); refused && (err == nil || !strings.Contains(err.Error(), want)) || !refused && err != nil {
			t.Errorf("image %s: got %v, want refused: %t", image, err, refused)
		}
	}
}

// pinnedTenant has nodes of its own, and no tokens in its Pods. The policy with the defaults is
// not installed.
const pinnedTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: pinned, labels: {tenure.dev/tenant: pinned, tenure.dev/parameters: "true"}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: pinned}
spec:
  tenant: pinned
  platformNamespaces: [flux-system]
  tenants:
    workloads:
      nodes: {selector: {pool: pinned, example.com/zone: a}, tolerations: [{key: pool, value: pinned}, {key: spot, operator: Exists, effect: NoSchedule}]}
      automountTokens: Forbidden
    network: {services: {nodePorts: ["30100"]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: pinned, labels: {tenure.dev/managed-by: manager}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: tenant, namespace: pinned}]`

// The Pods of a tenant with nodes of its own run on them, and have no token unless they ask for it.
func nodesAndTokens(t *testing.T, admin client.Client, restConfig *rest.Config) {
	t.Helper()
	makeAll(t, admin, strings.Split(pinnedTenant, "---\n"))
	tenant := inNamespace(t, restConfig, "pinned", "tenant")
	create := func(manifest string) error {
		u := parse(t, manifest)
		u.SetNamespace("pinned")
		return tenant.Create(t.Context(), u, client.DryRunAll)
	}
	const (
		nodes  = "nodeSelector: {pool: pinned, example.com/zone: a}"
		silent = "automountServiceAccountToken: false"
		head   = "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {serviceAccountName: default, containers: [{name: a, image: a}], "
		set    = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}], "
	)
	testwait.For(t, "the rights and the account of Pods", patience, func() (bool, string) {
		err := create(head + nodes + ", " + silent + "}}")
		return err == nil, fmt.Sprint(err)
	})
	testwait.For(t, "the defaults of another test to be gone", patience, func() (bool, string) {
		err := create(head + silent + "}}")
		return err != nil, fmt.Sprint(err)
	})
	const balancer = "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: LoadBalancer, externalTrafficPolicy: Local, "
	for what, c := range map[string]struct{ manifest, want string }{
		"no nodes":                                    {head + silent + "}}", "Pod x must not run on nodes of others: spec.nodeSelector needs "},
		"a part of the labels":                        {head + "nodeSelector: {pool: pinned}, " + silent + "}}", "must not run on nodes of others"},
		"further labels":                              {head + "nodeSelector: {pool: pinned, example.com/zone: a, disk: ssd}, " + silent + "}}", ""},
		"other nodes":                                 {head + "nodeSelector: {pool: pinned, example.com/zone: b}, " + silent + "}}", "must not run on nodes of others"},
		"a toleration":                                {head + nodes + ", " + silent + ", tolerations: [{key: pool, value: pinned, operator: Equal}, {key: spot, operator: Exists, effect: NoSchedule}]}}", ""},
		"a toleration of another value":               {head + nodes + ", " + silent + ", tolerations: [{key: pool, value: other}]}}", "must not tolerate taints pool (allowed: node.kubernetes.io/*, pool=pinned, spot)"},
		"a toleration of every value":                 {head + nodes + ", " + silent + ", tolerations: [{key: pool, operator: Exists}]}}", "must not tolerate taints pool"},
		"a toleration of every effect":                {head + nodes + ", " + silent + ", tolerations: [{key: spot, operator: Exists}]}}", "must not tolerate taints spot"},
		"a token":                                     {head + nodes + "}}", "must not mount a token of its account automatically: set spec.automountServiceAccountToken to false"},
		"a token by name":                             {head + nodes + ", automountServiceAccountToken: true}}", "must not mount a token"},
		"a template without nodes":                    {set + silent + "}}}}", ""},
		"a template with other nodes":                 {set + silent + ", nodeSelector: {pool: other}}}}}", "Deployment x must not run on nodes of others"},
		"a template with a token":                     {set + nodes + "}}}}", "Deployment x must not mount a token"},
		"a template with an affinity":                 {set + silent + ", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [node-1]}]}]}}}}}}}", ""},
		"a port of a load balancer for health checks": {balancer + "healthCheckNodePort: 30201, ports: [{port: 80, nodePort: 30100}]}}", "Service x must not open port 30201 on every node (allowed: 30100)"},
		"a load balancer without ports of nodes":      {"{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}", ""},
		"a priority beside that of a class":           {head + nodes + ", " + silent + ", priority: 1000000}}", "the integer value of priority (1000000) must not be provided"},
		"another preemption than a class's":           {head + nodes + ", " + silent + ", priorityClassName: quiet, preemptionPolicy: PreemptLowerPriority}}", "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided"},
	} {
		if err := create(c.manifest); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
	}
}

// The limits hold for what a tenant adds to a Pod, and for its binding to a node.
func subresources(t *testing.T, admin, tenant client.Client) {
	t.Helper()
	pod := parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: subresources, namespace: limited}, spec: {containers: [{name: a, image: 'registry.example.com/acme/app"+digest+"', imagePullPolicy: Always}]}}")
	r := requester{admin: admin, account: tenant, namespace: "limited"}
	r.makes(t, admin, pod)
	debugger := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"ephemeralContainers":[{"name":"b","image":"evil.example/a"}]}}`))
	refused(t, "tenure-workloads", tenant.SubResource("ephemeralcontainers").Patch(t.Context(), pod.DeepCopy(), debugger, client.DryRunAll))
	// A resize changes nothing but resources, so that no rule covers it.
	resized := pod.DeepCopy()
	resize := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"schedulerName":"mine","containers":[{"name":"a","image":"evil.example/a","ports":[{"containerPort":80,"hostPort":81}]}]}}`))
	err := tenant.SubResource("resize").Patch(t.Context(), resized, resize, client.DryRunAll)
	for _, field := range []string{"containers", "schedulerName"} { // the scheduler changes others
		before, _, _ := unstructured.NestedFieldNoCopy(pod.Object, "spec", field)
		if after, _, _ := unstructured.NestedFieldNoCopy(resized.Object, "spec", field); err == nil && !equality.Semantic.DeepEqual(after, before) {
			t.Errorf("a resize changes %s to %v", field, after)
		}
	}
	binding := parse(t, "{apiVersion: v1, kind: Binding, metadata: {name: subresources}, target: {kind: Node, name: node-1}}")
	refused(t, "tenure-nodes", tenant.SubResource("binding").Create(t.Context(), pod.DeepCopy(), binding, client.DryRunAll))
}

// An object that is older than a limit can be updated and deleted, as long as the update does
// not change what the limit is about.
func olderObjects(t *testing.T, admin, tenant client.Client) {
	t.Helper()
	for _, manifest := range []string{
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: older}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {tolerations: [{operator: Exists}], priorityClassName: urgent, containers: [{name: a, image: evil.example/a, livenessProbe: {httpGet: {host: a.example.com, port: 80}}}]}}}}",
		"{apiVersion: v1, kind: Service, metadata: {name: older, labels: {cloud.example.com/a: b}}, spec: {type: LoadBalancer, externalIPs: [10.0.0.1], ports: [{port: 80}]}}",
		"{apiVersion: v1, kind: Service, metadata: {name: older-name}, spec: {type: ExternalName, externalName: a.example.com}}",
		"{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: older}, spec: {ingressClassName: internal, rules: [{host: shop.other.example.com}]}}",
		"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: older}, spec: {storageClassName: slow, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
	} {
		u := parse(t, manifest)
		u.SetNamespace("limited")
		if err := admin.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		patch := func(content string) error {
			return tenant.Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(content)))
		}
		if err := patch(`{"metadata":{"labels":{"x":"y"}}}`); err != nil {
			t.Errorf("%s: a change of a label: %v", u.GetKind(), err)
		}
		for name, change := range map[string]struct{ content, want string }{
			"Deployment older":   {`{"spec":{"template":{"spec":{"priorityClassName":"urgent","schedulerName":"mine"}}}}`, "scheduler mine"},
			"Service older-name": {`{"spec":{"externalName":"b.example.com"}}`, "must not lead to b.example.com, which spec.externalName names (allowed types: ClusterIP, NodePort)"},
			"Service older":      {`{"spec":{"externalIPs":["10.0.0.1","10.0.0.2"]}}`, "address 10.0.0.2 in"},
			"Ingress older":      {`{"spec":{"rules":[{"host":"shop.other.example.com"},{"host":"two.other.example.com"}]}}`, "host two.other.example.com ("},
		} {
			if name != u.GetKind()+" "+u.GetName() {
				continue
			}
			if err := patch(change.content); err == nil || !strings.Contains(err.Error(), change.want) {
				t.Errorf("%s: got %v, want a refusal with %q", name, err, change.want)
			}
		}
		if err := tenant.Delete(t.Context(), u); err != nil {
			t.Errorf("%s: its deletion: %v", u.GetKind(), err)
		}
	}
}

// secondIngressClass adds a class in the annotation to an Ingress with one in the field, which
// the API server refuses in new Ingresses only.
func secondIngressClass(t *testing.T, tenant client.Client) {
	t.Helper()
	u := parse(t, "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: classes}, spec: {ingressClassName: public, rules: [{host: shop.acme.example.com}]}}")
	u.SetNamespace("limited")
	if err := tenant.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	for class, want := range map[string]string{"internal": "must not have ingress class 'internal' (allowed: public", "edge": ""} {
		err := tenant.Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"kubernetes.io/ingress.class":"`+class+`"}}}`)), client.DryRunAll)
		if want == "" && err != nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("class %s: got %v, want %q", class, err, want)
		}
	}
}

// controllers checks the requests of controllers. Controllers of Kubernetes create Pods and claims for
// tenants, so the limits apply to these. Controllers of the platform create Services and Ingresses as the
// platform.
func controllers(t *testing.T, restConfig *rest.Config) {
	t.Helper()
	replicas := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:replicaset-controller", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}})
	sets := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:statefulset-controller", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}})
	admin, tenant := newClient(t, restConfig, rest.ImpersonationConfig{}), inNamespace(t, restConfig, "limited", "tenant")
	volumes := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:ephemeral-volume-controller", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}})
	scheduler := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:kube-scheduler", Groups: []string{"system:authenticated"}})
	of := func(manifest string) *unstructured.Unstructured {
		u := parse(t, manifest)
		u.SetNamespace("limited")
		return u
	}
	for what, c := range map[string]struct {
		as       client.Client
		manifest string
		want     string
	}{
		"a Pod of a ReplicaSet":    {replicas, "{apiVersion: v1, kind: Pod, metadata: {name: c}, spec: {containers: [{name: a, image: evil.example/a}]}}", "Pod c must not use image evil.example/a"},
		"a claim of a StatefulSet": {sets, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {storageClassName: slow, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", "must not have storage class 'slow'"},
		"a claim of a Pod":         {volumes, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {storageClassName: slow, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", "must not have storage class 'slow'"},
		"a claim of the scheduler": {scheduler, "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: fpga}}]}}}", "must not request device class fpga"},
		"a good one of its":        {scheduler, "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}]}}}", ""},
		"a Service of an admin":    {admin, "{apiVersion: v1, kind: Service, metadata: {name: c}, spec: {externalIPs: [10.0.0.1], ports: [{port: 80}]}}", ""},
		"a Binding of an admin":    {admin, "{apiVersion: v1, kind: Binding, metadata: {name: c}, target: {kind: Node, name: node-1}}", "not found"},
		"a Binding of the tenant":  {tenant, "{apiVersion: v1, kind: Binding, metadata: {name: c}, target: {kind: Node, name: node-1}}", "must not be bound to a node"},
		"a Binding of a scheduler": {scheduler, "{apiVersion: v1, kind: Binding, metadata: {name: c}, target: {kind: Node, name: node-1}}", "not found"},
		"a Pod of an admin":        {admin, "{apiVersion: v1, kind: Pod, metadata: {name: c}, spec: {nodeName: node-1, containers: [{name: a, image: evil.example/a}]}}", ""},
	} {
		err := c.as.Create(t.Context(), of(c.manifest), client.DryRunAll)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
	}
}

// chosenAddresses creates Services with an address that the tenant chose, and applies an existing Service
// with its own address, as in a manifest that was exported from a cluster.
func chosenAddresses(t *testing.T, admin, tenant client.Client) {
	t.Helper()
	const head, spec = "apiVersion: v1, kind: Service, metadata: {namespace: limited, name: ", "ports: [{port: 80}]"
	service := func(name, fields string) *unstructured.Unstructured {
		return parse(t, "{"+head+name+"}, spec: {"+fields+spec+"}}")
	}
	apply := func(u *unstructured.Unstructured) error {
		return tenant.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kustomize-controller"), client.ForceOwnership, client.DryRunAll)
	}
	create := func(u *unstructured.Unstructured) error { return tenant.Create(t.Context(), u, client.DryRunAll) }
	existing := service("addressed", "")
	if err := tenant.Create(t.Context(), existing); err != nil {
		t.Fatal(err)
	}
	address, _, _ := unstructured.NestedString(existing.Object, "spec", "clusterIP")
	updated := existing.DeepCopy()
	updated.SetLabels(map[string]string{"a": "b"})
	const chosen = "must not choose the address FREE in spec.clusterIP"
	octets := netip.MustParseAddr(address).As4()
	octets[2] ^= 1
	free := netip.AddrFrom4(octets)
	external := parse(t, "{"+head+"external}, spec: {type: ExternalName, externalName: a.example.com, "+spec+"}}")
	if err := admin.Create(t.Context(), external); err != nil {
		t.Fatal(err)
	}
	assign := func(patch string) error {
		return tenant.Patch(t.Context(), external.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(strings.ReplaceAll(patch, "FREE", free.String()))), client.DryRunAll)
	}
	unmanaged := parse(t, "{"+head+"x, managedFields: [{}]}, spec: {clusterIP: "+free.String()+", "+spec+"}}")
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"a Service that leaves its address out", create(service("x", "")), ""},
		{"one with an empty address", create(service("x", "clusterIP: '', ")), ""},
		{"a headless one", create(service("x", "clusterIP: None, clusterIPs: [None], ")), ""},
		{"one with two families", create(service("x", "ipFamilyPolicy: PreferDualStack, ")), ""},
		{"an address of the tenant's choice", create(service("x", "clusterIP: "+free.String()+", ")), chosen},
		{"in a list too", create(service("x", "clusterIP: "+free.String()+", clusterIPs: ["+free.String()+"], ")), chosen},
		{"by an apply", apply(service("x", "clusterIP: "+free.String()+", ")), chosen},
		{"of a request that hides its fields", create(unmanaged), chosen},
		{"an apply that leaves it out", apply(service("x", "")), ""},
		{"an apply of an existing Service with its address", apply(service("addressed", "clusterIP: "+address+", clusterIPs: ["+address+"], ")), ""},
		{"an apply of it without the address", apply(service("addressed", "")), ""},
		{"an update of it as it was read", tenant.Update(t.Context(), updated, client.DryRunAll), ""},
		{"a Service without an address gets one", assign(`{"spec":{"type":"ClusterIP","externalName":null}}`), ""},
		{"one of the tenant's choice", assign(`{"spec":{"type":"ClusterIP","externalName":null,"clusterIP":"FREE"}}`), chosen},
		{"by a request that removes the field managers", assign(`{"metadata":{"managedFields":[{}]},"spec":{"type":"ClusterIP","externalName":null,"clusterIP":"FREE"}}`), chosen},
	} {
		t.Run(tc.reason, func(t *testing.T) { check(t, tc.err, strings.ReplaceAll(tc.want, "FREE", free.String())) })
	}
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AllowedNames are the names that an object may refer to, such as the names of classes. A
// name is allowed if an entry of allowed or the expression matches it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.expression) || 'x'.matches(self.expression) || !'x'.matches(self.expression)",message="expression is not a regular expression in the syntax of RE2",fieldPath=".expression"
type AllowedNames struct {
	// allowed lists names. A * matches any characters.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Allowed []ValuePattern `json:"allowed,omitempty"`
	// expression is a regular expression in the syntax of RE2. It matches a name if it
	// matches a part of the name: begin it with ^ and end it with $ to match the whole
	// name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Expression string `json:"expression,omitempty"`
}

// AllowedClasses are the classes that an object may have: those of [AllowedNames], and those
// that selector selects. If nothing is set, no class is allowed. If only default is set, the
// classes of the TenancyProfile are allowed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.default) || !has(self.allowed) || has(self.expression) || has(self.selector) || self.allowed.exists(p, p == self.default || p.contains('*'))",message="default is one of the allowed classes",fieldPath=".default"
type AllowedClasses struct {
	AllowedNames `json:",inline"`
	// selector selects classes by their labels; an empty selector selects all classes. The
	// manager writes the names of the selected classes, at most 1024, to selectedClasses of
	// the TenantParameters in each namespace of the tenant. Until then, and in namespaces
	// without TenantParameters, the selector allows no class.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// default is the class of new objects that name none. The objects get it from the policy
	// tenure-defaults, which needs Kubernetes 1.36 and is installed separately. It is no
	// limit, and must be one of the allowed classes. It replaces a default class of
	// the cluster, and no class that the object names.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Default string `json:"default,omitempty"`
}

// ObjectMetadata are labels and annotations that objects get.
type ObjectMetadata struct {
	// labels by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'))",message="a label's name is at most 63 letters, digits, dots, hyphens and underscores, with a DNS name and a / before it or not"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tenure.dev/'))",message="labels of tenure.dev are not yours to set"
	Labels map[string]LabelValue `json:"labels,omitempty"`
	// annotations by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'))",message="an annotation's name is at most 63 letters, digits, dots, hyphens and underscores, with a DNS name and a / before it or not"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tenure.dev/'))",message="annotations of tenure.dev are not yours to set"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// DefaultClasses are the classes that new objects get if they name none.
type DefaultClasses struct {
	// priorityClass is the default of workloads.priorityClasses.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClass string `json:"priorityClass,omitempty"`
	// runtimeClass is the default of workloads.runtimeClasses.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RuntimeClass string `json:"runtimeClass,omitempty"`
	// ingressClass is the default of network.ingressClasses.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	IngressClass string `json:"ingressClass,omitempty"`
	// gatewayClass is the default of network.gatewayClasses.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	GatewayClass string `json:"gatewayClass,omitempty"`
	// storageClass is the default of storage.classes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`
}

// MaxSelectedClasses is the maximum number of classes of a kind that a selector selects.
const MaxSelectedClasses = 1024

// SelectedClasses are the names of the classes that the selectors of the limits select, sorted.
// The manager computes them, because a rule in the API server cannot read another object.
type SelectedClasses struct {
	// priorityClasses are selected by workloads.priorityClasses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	PriorityClasses []string `json:"priorityClasses,omitempty"`
	// runtimeClasses are selected by workloads.runtimeClasses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	RuntimeClasses []string `json:"runtimeClasses,omitempty"`
	// deviceClasses are selected by workloads.deviceClasses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	DeviceClasses []string `json:"deviceClasses,omitempty"`
	// ingressClasses are selected by network.ingressClasses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	IngressClasses []string `json:"ingressClasses,omitempty"`
	// gatewayClasses are selected by network.gatewayClasses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	GatewayClasses []string `json:"gatewayClasses,omitempty"`
	// storageClasses are selected by storage.classes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	StorageClasses []string `json:"storageClasses,omitempty"`
}

// Workloads limits the Pods of a tenant. The rule reads the Pods and the templates of all
// kinds of workloads, so that a Deployment is refused and not only its Pods. An update that
// does not change a limited field is never refused.
type Workloads struct {
	// images limits the images of all containers and image volumes.
	// +optional
	Images *Images `json:"images,omitempty"`

	// priorityClasses are the priority classes that Pods may have. If it is unset, Pods
	// may have every class except those of Kubernetes, which begin with system-. A Pod
	// without a class is always allowed. The selector does not select the classes of
	// Kubernetes: name them in allowed.
	// +optional
	PriorityClasses *AllowedClasses `json:"priorityClasses,omitempty"`

	// runtimeClasses are the runtime classes that Pods may have. If it is unset, Pods may
	// have every class. A Pod without a class is always allowed.
	// +optional
	RuntimeClasses *AllowedClasses `json:"runtimeClasses,omitempty"`

	// deviceClasses are the device classes that ResourceClaims may request. If it is
	// unset, they may request every class.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.default)",message="device classes have no default: a claim names its classes",fieldPath=".default"
	DeviceClasses *AllowedClasses `json:"deviceClasses,omitempty"`

	// schedulers are the schedulers that Pods may name in spec.schedulerName, in addition
	// to default-scheduler. The entry * allows every scheduler. No Pod may name a node in spec.nodeName, which bypasses the
	// scheduler and with it the taints of the node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Schedulers []string `json:"schedulers,omitempty"`

	// tolerations are the keys of the taints that Pods may tolerate, in addition to keys
	// that begin with node.kubernetes.io/. A * matches any characters; a toleration
	// without a key, which tolerates every taint, needs the entry *.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Tolerations []ValuePattern `json:"tolerations,omitempty"`

	// nodes are the nodes on which the tenant's Pods run. If it is unset, the scheduler chooses
	// among all nodes whose taints the Pods tolerate.
	// +optional
	Nodes *Nodes `json:"nodes,omitempty"`

	// hostPorts are the ports of nodes that containers may have in hostPort. If it is unset, they
	// may have none. Pod Security forbids all of them at its levels baseline and restricted. The
	// API server sets hostPort for each port of a Pod with hostNetwork.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	HostPorts []PortRange `json:"hostPorts,omitempty"`

	// automountTokens is Forbidden if Pods and templates must have
	// automountServiceAccountToken: false, and Allowed, the default, if not. A Pod may still
	// mount a token with a volume of its own.
	// +optional
	// +kubebuilder:validation:Enum=Allowed;Forbidden
	AutomountTokens string `json:"automountTokens,omitempty"`

	// podAnnotations are the names of annotations that Pods may have although they reach beyond the
	// tenant: they take an address, a network of another namespace, a cloud role of the node or a
	// device. If it is unset, there are none. Other annotations need no entry.
	// +optional
	PodAnnotations *AllowedNames `json:"podAnnotations,omitempty"`

	// metadata are labels and annotations that all Pods of the tenant get, whatever values
	// they had, from the policy tenure-defaults. It needs Kubernetes 1.36 and is installed
	// separately.
	// +optional
	Metadata *ObjectMetadata `json:"metadata,omitempty"`
}

// Nodes are the nodes of a tenant. The policy tenure-defaults, which needs Kubernetes 1.36 and is
// installed separately, gives selector and tolerations to new Pods and to the templates of
// DaemonSets. Without it, the tenant writes the selector itself.
type Nodes struct {
	// selector are labels of nodes. Each new Pod needs them in spec.nodeSelector, and may have
	// further ones; a template may leave them out, but not have other values.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'))",message="a label's name is at most 63 letters, digits, dots, hyphens and underscores, with a DNS name and a / before it or not"
	Selector map[string]LabelValue `json:"selector,omitempty"`

	// tolerations are the tolerations that Pods get, and may have in addition to those of
	// workloads.tolerations.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Tolerations []NodeToleration `json:"tolerations,omitempty"`
}

// NodeToleration is a toleration of a Pod, for an unlimited time.
//
// +kubebuilder:validation:XValidation:rule="self.operator != 'Exists' || !has(self.value)",message="a toleration with operator Exists has no value",fieldPath=".value"
type NodeToleration struct {
	// key of the taint.
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`
	Key string `json:"key"`
	// operator is Equal, the default, if the taint must have the value, and Exists if any value
	// is tolerated.
	// +optional
	// +kubebuilder:default=Equal
	// +kubebuilder:validation:Enum=Equal;Exists
	Operator string `json:"operator,omitempty"`
	// value of the taint.
	// +optional
	Value LabelValue `json:"value,omitempty"`
	// effect of the taint; without it, every effect is tolerated.
	// +optional
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect string `json:"effect,omitempty"`
}

// AutomountForbidden is the value of automountTokens that demands Pods without such a token.
const AutomountForbidden = "Forbidden"

// PortRange is a port, such as 8080, or a range of ports, such as 30100-30199.
//
// +kubebuilder:validation:MaxLength=11
// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$`
// +kubebuilder:validation:XValidation:rule="self.split('-').all(p, int(p) <= 65535) && int(self.split('-')[0]) <= int(self.split('-')[self.split('-').size() - 1])",message="a range of ports is two ports of at most 65535, the lower one first, such as 30100-30199"
type PortRange string

// Images limits the images of Pods.
//
// +kubebuilder:validation:XValidation:rule="!has(self.pullPolicy) || !has(self.pullPolicies) || self.pullPolicy in self.pullPolicies",message="pullPolicy is one of pullPolicies",fieldPath=".pullPolicy"
// +kubebuilder:validation:XValidation:rule="!has(self.registryExpression) || 'x'.matches(self.registryExpression) || !'x'.matches(self.registryExpression)",message="registryExpression is not a regular expression in the syntax of RE2",fieldPath=".registryExpression"
type Images struct {
	// registries are patterns of repositories, without tags and digests, such as
	// registry.example.com/dev-team/*. A * matches any characters except a slash, and a
	// final /** matches everything below. Images of Docker Hub match with their full
	// name, such as docker.io/library/nginx. If this list and registryExpression are
	// unset, images may come from every repository.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Registries []ImagePattern `json:"registries,omitempty"`

	// registryExpression is a regular expression in the syntax of RE2, such as
	// ^(docker|quay)[.]io$. Images may also come from the registries whose names it
	// matches, ports included. It matches a name if it matches a part of the name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	RegistryExpression string `json:"registryExpression,omitempty"`

	// pullPolicies are the values that imagePullPolicy may have. If it is unset, it may
	// have every value.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Always;IfNotPresent;Never
	PullPolicies []string `json:"pullPolicies,omitempty"`

	// pullPolicy is the imagePullPolicy that all containers of new Pods get, whatever they had,
	// from the policy tenure-defaults; of more than 64 containers, the first ones. Templates may
	// then have every value. It needs Kubernetes 1.36 and is installed separately.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	PullPolicy string `json:"pullPolicy,omitempty"`

	// digests is Required if each image must have a digest, such as @sha256:…, and
	// Optional, the default, if not.
	// +optional
	// +kubebuilder:validation:Enum=Optional;Required
	Digests string `json:"digests,omitempty"`

	// registry is Required if each image must name its registry, such as docker.io/library/nginx,
	// and Optional, the default, if not. The container runtime of a node may complete
	// a name without a registry with another one than docker.io.
	// +optional
	// +kubebuilder:validation:Enum=Optional;Required
	Registry string `json:"registry,omitempty"`
}

const (
	// DigestsRequired is the value of digests that demands a digest.
	DigestsRequired = "Required"
	// RegistryRequired is the value of registry that demands the name of the registry.
	RegistryRequired = "Required"
)

// ImagePattern is a pattern of repositories that begins with the name of the registry, which is
// localhost or has a dot or a port: docker.io/acme/nginx, and not acme/nginx. A * matches any
// characters except a slash, and a final /** matches everything below.
//
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:Pattern=`^(localhost|[a-z0-9*][a-z0-9*-]*:[0-9]{1,5}|[a-z0-9*][a-z0-9*-]*([.][a-z0-9*-]*[a-z0-9*])+(:[0-9]{1,5})?)(/[a-z0-9._*-]+)+$`
// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/]*[*][^/.:]*[:/]')",message="a pattern has no * in the last label of its registry: everything under a top-level domain would match"
// +kubebuilder:validation:XValidation:rule="!self.matches('[*][*].') && !self.matches('[^/][*][*]')",message="a pattern has ** at its end only, as /**"
type ImagePattern string

// Network limits the Services of a tenant, the routes from outside that lead to them, and the
// connections of other tenants. A controller of the platform, which may write such objects in
// every namespace, is not limited.
type Network struct {
	// isolation says which Pods may open connections to the tenant's Pods. Tenant, the
	// default, lets in the Pods of the tenant's own namespaces; Namespace, only those of the
	// same namespace. Both also let in the Pods of namespaces that belong to no tenant, such as
	// an ingress controller's. The manager writes a NetworkPolicy with this into each of the
	// tenant's namespaces. The tenant can let in more with NetworkPolicies of its own, unless the
	// cluster serves the kind ClusterNetworkPolicy of policy.networking.k8s.io: there the manager
	// also writes policies of the tier Admin with the same isolation, which no NetworkPolicy
	// opens. With None the manager writes no policies, and removes its own.
	// +optional
	// +kubebuilder:validation:Enum=Tenant;Namespace;None
	Isolation string `json:"isolation,omitempty"`

	// services limits Services.
	// +optional
	Services *Services `json:"services,omitempty"`

	// hosts are the names that Ingresses, HTTPRoutes, GRPCRoutes, TLSRoutes and Gateways
	// may have. If it is unset, they may have every name that does not begin with *. If
	// it is set, each of them needs a name, because an object without one matches all
	// names. A name that begins with * is allowed by an entry of the list only, and not
	// by the expression.
	// +optional
	Hosts *AllowedNames `json:"hosts,omitempty"`

	// ingressClasses are the classes that Ingresses may have. If it is unset, they may
	// have every class. If it is set, each Ingress needs a class.
	// +optional
	IngressClasses *AllowedClasses `json:"ingressClasses,omitempty"`

	// gatewayClasses are the classes that Gateways may have. If it is unset, they may
	// have every class.
	// +optional
	GatewayClasses *AllowedClasses `json:"gatewayClasses,omitempty"`

	// gateways are the Gateways of other namespaces, as NAMESPACE/NAME, that routes may
	// attach to. If it is unset, they may attach to every Gateway that admits them.
	// +optional
	Gateways *AllowedNames `json:"gateways,omitempty"`

	// ingressAnnotations are the names of annotations that Ingresses may have although they
	// reach beyond the tenant: they write text into the configuration of an ingress
	// controller (CVE-2021-25742), join a load balancer that several namespaces share, or
	// name an object of another namespace. If it is unset, there are none. Other
	// annotations need no entry.
	// +optional
	IngressAnnotations *AllowedNames `json:"ingressAnnotations,omitempty"`
}

// The values of isolation.
const (
	IsolationTenant    = "Tenant"
	IsolationNamespace = "Namespace"
	IsolationNone      = "None"
)

// Services limits Services.
//
// +kubebuilder:validation:XValidation:rule="!has(self.deniedLabelExpression) || 'x'.matches(self.deniedLabelExpression) || !'x'.matches(self.deniedLabelExpression)",message="deniedLabelExpression is not a regular expression in the syntax of RE2",fieldPath=".deniedLabelExpression"
// +kubebuilder:validation:XValidation:rule="!has(self.deniedAnnotationExpression) || 'x'.matches(self.deniedAnnotationExpression) || !'x'.matches(self.deniedAnnotationExpression)",message="deniedAnnotationExpression is not a regular expression in the syntax of RE2",fieldPath=".deniedAnnotationExpression"
type Services struct {
	// types are the types that Services may have. If it is unset, they may be ClusterIP
	// and LoadBalancer: a NodePort opens a port on every node, and an ExternalName can
	// lead a proxy of the platform to any address.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ClusterIP;NodePort;LoadBalancer;ExternalName
	Types []string `json:"types,omitempty"`

	// externalIPs are the ranges of addresses, such as 203.0.113.0/24, that Services may
	// have in spec.externalIPs, in spec.loadBalancerIP and in the annotations of load
	// balancers with addresses. If it is unset, they may have
	// none: a Service takes the traffic of every Pod to such an address
	// (CVE-2020-8554).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	ExternalIPs []AddressRange `json:"externalIPs,omitempty"`

	// loadBalancerIPs are the ranges of addresses that Services may have in
	// spec.loadBalancerIP and in the annotations of load balancers, in addition to
	// externalIPs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	LoadBalancerIPs []AddressRange `json:"loadBalancerIPs,omitempty"`

	// loadBalancerClasses are the values that spec.loadBalancerClass may have. If it is
	// unset, it may have every value.
	// +optional
	LoadBalancerClasses *AllowedNames `json:"loadBalancerClasses,omitempty"`

	// nodePorts are the ports that Services may open on every node, those of load balancers
	// included. If it is unset, they may have every port of the cluster's range. If it is set,
	// a Service names its ports, because the API server otherwise chooses any free one.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	NodePorts []PortRange `json:"nodePorts,omitempty"`

	// endpoints are the ranges of addresses to which the tenant may lead a Service with
	// EndpointSlices and Endpoints that it writes, such as 203.0.113.0/24. If it is unset,
	// there are none: a Service leads past the network policies of others to their Pods
	// (CVE-2021-25740).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Endpoints []AddressRange `json:"endpoints,omitempty"`

	// allowedAnnotations are the names of annotations that Services may have although they reach
	// beyond the tenant: they share the address of a load balancer with other namespaces, or take
	// over a load balancer, an address or a firewall that exists already. If it is unset, there
	// are none. Other annotations need no entry.
	// +optional
	AllowedAnnotations *AllowedNames `json:"allowedAnnotations,omitempty"`

	// deniedLabels are the names of labels that Services may not have. A * matches any
	// characters.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	DeniedLabels []ValuePattern `json:"deniedLabels,omitempty"`

	// deniedAnnotations are the names of annotations that Services may not have. A *
	// matches any characters. Cloud controllers read annotations of Services.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	DeniedAnnotations []ValuePattern `json:"deniedAnnotations,omitempty"`

	// deniedLabelExpression is a regular expression in the syntax of RE2. Services may not
	// have a label if the expression matches a part of the label's name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	DeniedLabelExpression string `json:"deniedLabelExpression,omitempty"`

	// deniedAnnotationExpression is like deniedLabelExpression, for annotations.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	DeniedAnnotationExpression string `json:"deniedAnnotationExpression,omitempty"`

	// metadata are labels and annotations that all Services and EndpointSlices of the tenant
	// get, like workloads.metadata.
	// +optional
	Metadata *ObjectMetadata `json:"metadata,omitempty"`
}

// AddressRange is a range of IP addresses in CIDR notation.
//
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="a range of addresses is an address and the length of its prefix, such as 203.0.113.0/24 or 203.0.113.7/32"
type AddressRange string

// Storage limits the volumes of a tenant.
type Storage struct {
	// classes are the storage classes that claims may have. If it is unset, they may have
	// every class. If it is set, each claim needs a class.
	// +optional
	Classes *AllowedClasses `json:"classes,omitempty"`

	// attributesClasses are the VolumeAttributesClasses that claims may have, such as those with
	// a higher throughput. If it is unset, they may have every class. A claim without one is
	// always allowed.
	// +optional
	AttributesClasses *AllowedNames `json:"attributesClasses,omitempty"`

	// volumes are the PersistentVolumes that claims may name in spec.volumeName. If it is
	// unset, existingVolumes decides.
	// +optional
	Volumes *AllowedNames `json:"volumes,omitempty"`

	// existingVolumes allows claims to choose a PersistentVolume by spec.selector or by an
	// empty class and, without volumes, by spec.volumeName, and Pods to mount storage by its
	// address, such as nfs. The default is false: the volume could be another tenant's. The provisioner of a class makes a new volume for each claim.
	// +optional
	ExistingVolumes *bool `json:"existingVolumes,omitempty"`

	// copyAnnotations are the names of annotations of Secrets, ConfigMaps, service accounts, Roles and
	// RoleBindings by which a controller of the platform may copy a tenant's object into other namespaces, or an object of another
	// namespace into the tenant's: those of kubernetes-replicator, reflector and config-syncer. If it is unset,
	// there are none. Other annotations need no entry.
	// +optional
	CopyAnnotations *AllowedNames `json:"copyAnnotations,omitempty"`
}

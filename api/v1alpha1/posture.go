package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Posture limits the objects of one tenant or of all tenants, where RBAC cannot. The default
// of each field about Flux objects is the strictest value.
type Posture struct {
	// accounts are the service accounts that may apply the tenant's Kustomizations and
	// HelmReleases.
	// +optional
	Accounts Accounts `json:"accounts,omitempty,omitzero"`

	// sources are the addresses that the tenant may fetch from.
	// +optional
	Sources Sources `json:"sources,omitempty,omitzero"`

	// signatures are the signatures that the tenant's sources must have. By default they need
	// none.
	// +optional
	Signatures Signatures `json:"signatures,omitempty,omitzero"`

	// bounds limit the time that Flux spends on one tenant.
	// +optional
	// +kubebuilder:default={}
	Bounds Bounds `json:"bounds,omitempty,omitzero"`

	// notifications limit the tenant's Receivers and Providers.
	// +optional
	// +kubebuilder:default={}
	Notifications Notifications `json:"notifications,omitempty,omitzero"`

	// flagger allows Flagger's kinds, within its lists. Without it, a tenant may not have
	// Canaries, MetricTemplates or AlertProviders: Flagger acts on them with its own
	// rights.
	// +optional
	Flagger *Flagger `json:"flagger,omitempty"`

	// kubeConfigs are the names of Secrets that a Kustomization or HelmRelease may name in
	// spec.kubeConfig. The default is none, since Tenure's rules are not in force on other
	// API servers.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	KubeConfigs []string `json:"kubeConfigs,omitempty"`

	// workloads limits the tenant's Pods.
	// +optional
	Workloads Workloads `json:"workloads,omitempty,omitzero"`

	// network limits the tenant's Services, the routes that lead to them and the
	// connections of other tenants.
	// +optional
	Network Network `json:"network,omitempty,omitzero"`

	// storage limits the tenant's volumes.
	// +optional
	Storage Storage `json:"storage,omitempty,omitzero"`
}

// Accounts are service accounts of a tenant's namespace.
type Accounts struct {
	// reconcilers are the accounts that a Kustomization or HelmRelease may name, in
	// addition to the account with the tenant's name, which `flux create tenant` creates.
	// A Pod may not run as any of these accounts.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Reconcilers []string `json:"reconcilers,omitempty"`
}

// Sources are approved addresses by the kind of source. An address is a pattern: a URL in
// which * matches any characters except a slash, and a final /** matches all paths below. A
// tenant cannot have sources of a kind without patterns.
type Sources struct {
	// git are addresses of GitRepositories, such as
	// https://github.com/acme/* or ssh://git@github.com/acme/*.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Git []AddressPattern `json:"git,omitempty"`

	// helm lists addresses of HelmRepositories. An https or http address is a host
	// without a path and without *, such as https://charts.example.com, and approves the
	// whole host: an index may name any address for a chart. Any other https pattern
	// matches nothing. An oci address is a pattern as in the other lists.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Helm []AddressPattern `json:"helm,omitempty"`

	// anyChartDependencies allows charts from the tenant's own GitRepositories and
	// Buckets, in namespaces that belong to a shard. source-controller then fetches the
	// dependencies of such a chart from every address that the chart names, also inside
	// the cluster, unless the shard's network policies prevent it.
	// +optional
	AnyChartDependencies bool `json:"anyChartDependencies,omitempty"`

	// oci are addresses of OCIRepositories. They also approve the images of
	// ImageRepositories, compared with oci:// in front.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	OCI []AddressPattern `json:"oci,omitempty"`

	// buckets are the buckets that a Bucket may name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Buckets []BucketPattern `json:"buckets,omitempty"`

	// providers are the values of spec.provider that a source, an image repository or a
	// decryption may have. With every value except generic, Flux uses its own identity or
	// an identity of the cloud. The types of notification Providers that can do the same
	// need an entry here: googlepubsub needs gcp, azureeventhub and azuredevops need
	// azure.
	// +optional
	// +listType=set
	// +kubebuilder:default={generic}
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Enum=generic;aws;azure;gcp;github
	Providers []string `json:"providers,omitempty"`
}

// AddressPattern is a URL in which * matches any characters except a slash, and a final /**
// matches all paths below.
//
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:Pattern=`^(https?|ssh|oci)://([a-z0-9_-]+@)?[a-z0-9*]([a-z0-9.*-]*[a-z0-9*])?(:[0-9]{1,5})?(/[A-Za-z0-9._~*-]+)*/?(/\*\*)?$`
// +kubebuilder:validation:XValidation:rule="!self.contains('..') && !self.matches('^[a-z]+://[^/]*[*][^/.]*(/|$)')",message="a pattern has no .. and no * in the last label of its host: everything under a top-level domain would match"
// +kubebuilder:validation:XValidation:rule="!self.matches('[*][*].') && !self.matches('[^/][*][*]')",message="a pattern has ** at its end only, as /**"
type AddressPattern string

// BucketPattern matches the buckets that a tenant may use. An empty field matches any value;
// the endpoint is required.
type BucketPattern struct {
	// endpoint is the exact host or host:port.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Endpoint string `json:"endpoint"`
	// bucketName is the bucket's name, in which * matches any characters.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._*-]*$`
	BucketName string `json:"bucketName,omitempty"`
	// region is the exact region of the bucket.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`
}

// Bounds are limits on what Flux does for a tenant.
type Bounds struct {
	// minInterval is the minimum of spec.interval and spec.retryInterval, and of the
	// interval in an ArtifactGenerator's annotation.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8760h')",message="an interval is at most 8760h"
	MinInterval metav1.Duration `json:"minInterval,omitempty,omitzero"`
	// maxTimeout is the maximum of spec.timeout: a Kustomization that waits occupies one of
	// the few workers of Flux until its timeout. Flux treats timeouts below 30 seconds as
	// 30 seconds. A namespace with maxObjects Kustomizations can delay the Kustomizations of
	// other tenants by maxObjects times maxTimeout divided by the number of workers, plus
	// maxTimeout.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8760h')",message="a timeout is at most 8760h"
	MaxTimeout metav1.Duration `json:"maxTimeout,omitempty,omitzero"`
	// maxObjects is the maximum number of objects of each Flux kind in a namespace. It is
	// also the maximum number of sources and artifacts of an ArtifactGenerator, and of
	// copies for each artifact.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxObjects int32 `json:"maxObjects,omitempty"`
	// finalizers are the finalizers that the tenant may set on objects in its namespaces,
	// such as the finalizers of its own operator. A finalizer that no controller removes
	// blocks the deletion of the namespace.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	Finalizers []string `json:"finalizers,omitempty"`
}

// Notifications limit the Receivers and Providers of a tenant, which receive and send
// requests across the border of the cluster.
type Notifications struct {
	// receiverTypes are the allowed values of a Receiver's spec.type. The default
	// excludes the types that do not authenticate the caller.
	// +optional
	// +listType=set
	// +kubebuilder:default={generic-hmac,github,gitlab,bitbucket}
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	ReceiverTypes []string `json:"receiverTypes,omitempty"`

	// addresses are the allowed values of a Provider's spec.address. If the list is empty,
	// a Provider may use every https address whose host is neither an IP address nor a
	// cluster-internal name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Addresses []AddressPattern `json:"addresses,omitempty"`

	// headers are the names of the HTTP headers that the Secret of a Provider may set, in
	// any case. With other headers, a tenant could impersonate another client to the
	// receiver.
	// +optional
	// +listType=set
	// +kubebuilder:default={Authorization}
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9-]+$`
	Headers []string `json:"headers,omitempty"`
}

// Flagger limits the tenants' objects of Flagger.
type Flagger struct {
	// addresses are patterns for the addresses in a MetricTemplate and in the webhooks of
	// a Canary; an AlertProvider uses the addresses of notifications. If the list is
	// empty, a MetricTemplate and a webhook may use every https address whose name is
	// outside of the cluster.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Addresses []AddressPattern `json:"addresses,omitempty"`

	// hosts are the names that a Canary may use in spec.service.hosts, in addition to the
	// Services of its own namespace. A * at the beginning matches any labels.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([*][.])?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Hosts []string `json:"hosts,omitempty"`

	// gateways are the gateways, as NAMESPACE/NAME, that a Canary may use in
	// spec.service.gateways and spec.service.gatewayRefs, in addition to the gateways of
	// its own namespace.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Gateways []string `json:"gateways,omitempty"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenancyProfile configures the rules for all tenants of a cluster. The only
// TenancyProfile has the name default. While it does not exist, tenants cannot change
// their Flux objects.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="there is one TenancyProfile, and its name is default"
type TenancyProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec configures the rules.
	// +required
	Spec TenancyProfileSpec `json:"spec"`
	// status is the state that the manager observed.
	// +optional
	Status TenancyProfileStatus `json:"status,omitempty,omitzero"`
}

// TenancyProfileSpec configures the rules for all tenants.
type TenancyProfileSpec struct {
	// platformNamespaces are the namespaces in which Flux and Tenure run. Objects that a
	// Kustomization or HelmRelease in these namespaces applied belong to the platform,
	// unless the platform delegated the sync to a tenant. This list gives no rights to
	// the service accounts of these namespaces: see platformAccounts.
	// +optional
	// +listType=set
	// +kubebuilder:default={flux-system}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	PlatformNamespaces []string `json:"platformNamespaces,omitempty"`

	// platformAccounts are the service accounts, as NAMESPACE/NAME, that are exempt from
	// the rules for tenants: the accounts of Flux's controllers and of Tenure's manager.
	// Users who may update TenancyProfiles are exempt without being listed. Do not list
	// an account that applies a tenant's repository.
	// +optional
	// +listType=set
	// +kubebuilder:default={"flux-system/source-controller","flux-system/kustomize-controller","flux-system/helm-controller","flux-system/notification-controller","flux-system/image-reflector-controller","flux-system/image-automation-controller","flux-system/source-watcher","flux-system/tenure-manager"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	PlatformAccounts []PlatformAccount `json:"platformAccounts,omitempty"`

	// delegatedSyncs are the Kustomizations and HelmReleases in platformNamespaces that
	// apply a tenant's repository, with an account that is not the platform's. The
	// objects that they applied belong to the tenant. Objects that other syncs in these
	// namespaces applied to a tenant's namespace belong to the platform, and only the
	// platform changes or deletes them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	DelegatedSyncs []DelegatedSync `json:"delegatedSyncs,omitempty"`

	// platformImages are the images that Pods may use in namespaces with the label
	// tenure.dev/images, in addition to the images in the annotation of the same name.
	// Each entry is a repository and a digest; a Pod may add a tag. If this list and the
	// annotation are empty, Pods may use every image.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	PlatformImages []PinnedImage `json:"platformImages,omitempty"`

	// breakGlass are groups whose members are exempt from all of Tenure's rules, for an
	// emergency.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	BreakGlass []string `json:"breakGlass,omitempty"`

	// exemptions are objects that are exempt from one rule each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Exemptions []Exemption `json:"exemptions,omitempty"`

	// protectedNamespaces are names that owners of tenants may not give a namespace, in
	// addition to the names of the platform's namespaces and names that begin with kube-.
	// A * matches any characters. The default has the names of namespaces in which
	// well-known components are installed.
	// +optional
	// +listType=set
	// +kubebuilder:default={"*-system","*-operator","argocd","cert-manager","cert-manager-*","cilium*","external-dns","external-secrets","falco","flux-*","gatekeeper*","grafana","harbor","ingress-*","istio-*","karpenter*","keda","keycloak","knative-*","kyverno*","linkerd*","logging","monitoring","nginx-gateway","observability","olm","openshift-*","prometheus*","rook-ceph","sealed-secrets","tekton-*","traefik*","trivy*","vault","velero"}
	// +kubebuilder:validation:MaxItems=64
	ProtectedNamespaces []ValuePattern `json:"protectedNamespaces,omitempty"`

	// domainNames is Allowed if owners of tenants may give a namespace a name without a
	// hyphen, which could be a top-level domain. It is Refused, the default, if they may
	// not. The resolver of a Pod completes host names with the names of namespaces, so
	// a Service in a namespace named com could receive requests that Pods of other tenants
	// send to a host of the internet. Owners of a tenant with a required prefix can never
	// use such a name.
	// +optional
	// +kubebuilder:validation:Enum=Refused;Allowed
	DomainNames string `json:"domainNames,omitempty"`

	// namespaceMetadata lists the labels and annotations that owners of tenants may
	// choose for the namespaces that they create. Gateways, network policies and other
	// objects select namespaces by labels, so a label in this list gives owners
	// everything that selects it.
	// +optional
	// +kubebuilder:default={}
	NamespaceMetadata NamespaceMetadata `json:"namespaceMetadata,omitempty,omitzero"`

	// tenants are the limits of every tenant. A Tenant can replace parts of them.
	// +optional
	// +kubebuilder:default={}
	Tenants Posture `json:"tenants,omitempty,omitzero"`

	// capsule chooses Capsule's way where it is less safe than Tenure's, for fleets that are
	// written for Capsule.
	// +optional
	Capsule CapsuleCompatibility `json:"capsule,omitempty,omitzero"`
}

// CapsuleCompatibility chooses Capsule's way where it is less safe than Tenure's.
type CapsuleCompatibility struct {
	// replication says with whose rights the manager applies the objects of a
	// TenantResource. With Namespace, the default, it applies them as one account of the
	// TenantResource's namespace. This account needs rights in the tenant's other namespaces,
	// and must be one as which Flux may apply the tenant's objects. With Tenant, it applies them in each
	// of the tenant's namespaces as the account with the tenant's name there, or as any account
	// of its own namespace that the TenantResource names: then whoever may write
	// TenantResources in one namespace of a tenant has the rights of these accounts in all
	// of the tenant's namespaces.
	// +optional
	// +kubebuilder:validation:Enum=Namespace;Tenant
	Replication string `json:"replication,omitempty"`
	// names says how the RoleBindings, quotas, limit ranges and network policies are named that
	// the manager makes for Capsule's Tenants. With Tenure, the default, they have Tenure's
	// names, and owners with the same role share a RoleBinding. With Capsule, they have the names
	// that Capsule gives them, with a RoleBinding for each role of each owner. Capsule's own
	// objects have the same names: choose Capsule after they are gone.
	// +optional
	// +kubebuilder:validation:Enum=Tenure;Capsule
	Names string `json:"names,omitempty"`
	// cordon says who sets and removes the label projectcapsule.dev/cordoned of a namespace of a
	// Tenant of Capsule. With Platform, the default, only the platform does. With Owners, owners
	// do it for the namespaces that they made: then an owner also ends what the platform began
	// with the label. A cordoned Tenant stays cordoned.
	// +optional
	// +kubebuilder:validation:Enum=Platform;Owners
	Cordon string `json:"cordon,omitempty"`
	// administrators says what the administrators of the CapsuleConfiguration may do with
	// namespaces. With Owners, the default, they do what the owners of each Tenant of Capsule do.
	// With Namespaces, they also create namespaces without a tenant, and assign namespaces to
	// Tenants of Capsule, move them between these Tenants and take them out of them: then an
	// administrator can give owners everything that is in a namespace, except those of the
	// platform, those with protected names and those of Tenants of tenure.dev.
	// +optional
	// +kubebuilder:validation:Enum=Owners;Namespaces
	Administrators string `json:"administrators,omitempty"`
}

// Values of the fields of capsule for Capsule's way.
const (
	ReplicationTenant        = "Tenant"
	NamesCapsule             = "Capsule"
	CordonOwners             = "Owners"
	AdministratorsNamespaces = "Namespaces"
)

// DomainNamesAllowed is the value of domainNames that allows names without a hyphen.
const DomainNamesAllowed = "Allowed"

// DelegatedSync is a Kustomization or HelmRelease that applies a tenant's repository.
type DelegatedSync struct {
	// tenant is the name of the tenant.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Tenant string `json:"tenant"`
	// namespace is the namespace of the Kustomization or HelmRelease.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name is the name of the Kustomization or HelmRelease.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PlatformAccount is a service account, as NAMESPACE/NAME.
//
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
type PlatformAccount string

// NamespaceMetadata lists names of labels and annotations, in which * matches any
// characters.
type NamespaceMetadata struct {
	// labels by name. The default has the labels that Flux and Helm set on objects that
	// they apply.
	// +optional
	// +listType=set
	// +kubebuilder:default={"app.kubernetes.io/managed-by","kustomize.toolkit.fluxcd.io/*","helm.toolkit.fluxcd.io/*"}
	// +kubebuilder:validation:MaxItems=32
	Labels []ValuePattern `json:"labels,omitempty"`
	// annotations by name. The default has the annotations that kubectl, Flux and Helm
	// set on objects that they apply.
	// +optional
	// +listType=set
	// +kubebuilder:default={"kubectl.kubernetes.io/last-applied-configuration","kustomize.toolkit.fluxcd.io/*","helm.toolkit.fluxcd.io/*","meta.helm.sh/*"}
	// +kubebuilder:validation:MaxItems=32
	Annotations []ValuePattern `json:"annotations,omitempty"`
}

// PinnedImage is an image without its tag and with its digest, such as
// registry.example.com/fluxcd/source-controller@sha256:….
//
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*@sha256:[0-9a-f]{64}$`
type PinnedImage string

// Exemption exempts an object from a rule.
type Exemption struct {
	// rule is the name of the policy, such as tenure-sources.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Rule string `json:"rule"`
	// namespace is the object's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// kind is the object's kind.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// name is the object's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// reason explains the exemption to later readers of the profile.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
}

// TenancyProfileStatus is the state that the manager observed.
type TenancyProfileStatus struct {
	// conditions: Ready is True if the profile is in force in all namespaces of tenants.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// TenancyProfileList is a list of TenancyProfiles.
//
// +kubebuilder:object:root=true
type TenancyProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenancyProfile `json:"items"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenancyProfile is the posture of a cluster towards all of its tenants. There
// is one, named default. While it is missing, tenants cannot change their Flux
// objects.
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

	// spec is what holds.
	// +required
	Spec TenancyProfileSpec `json:"spec"`
	// status is the state that the manager observed.
	// +optional
	Status TenancyProfileStatus `json:"status,omitempty,omitzero"`
}

// TenancyProfileSpec is what holds for all tenants.
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

	// platformImages are images that Pods may have in namespaces with the label
	// tenure.dev/images, beside those that the annotation of that name lists: each
	// is a repository and a digest, whatever tag stands between. Without any,
	// there and in the annotation, Pods may have every image.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	PlatformImages []PinnedImage `json:"platformImages,omitempty"`

	// breakGlass are groups that no rule of ours holds back, for an emergency.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	BreakGlass []string `json:"breakGlass,omitempty"`

	// exemptions are objects that rules do not hold for.
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

	// domainNames says whether owners of tenants may give a namespace a name that could be
	// a top-level domain, which is a name without a hyphen. It is Refused, the default, or
	// Allowed. The resolver of a Pod completes names with the names of namespaces, so
	// that Pods of all tenants could take a Service of a namespace com for a host of the
	// internet. Owners whose tenant demands a prefix cannot have such a name.
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

	// tenants is the posture towards every tenant that has none of its own.
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
	// TenantResource's namespace, which needs rights in the tenant's other namespaces, and
	// which the tenant must be allowed to be applied as. With Tenant, it applies them in each
	// of the tenant's namespaces as the account with the tenant's name there, or as any account
	// of its own namespace that the TenantResource names: then whoever may write
	// TenantResources in one namespace of a tenant has the rights of these accounts in all
	// of the tenant's namespaces.
	// +optional
	// +kubebuilder:validation:Enum=Namespace;Tenant
	Replication string `json:"replication,omitempty"`
}

// ReplicationTenant is the value of capsule.replication for Capsule's way.
const ReplicationTenant = "Tenant"

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

// Exemption takes an object out of rules.
type Exemption struct {
	// rule is the name of the policy, such as tenure-sources.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Rule string `json:"rule"`
	// namespace is the object's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// kind is the object's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// name is the object's.
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
	// conditions: Ready says whether the posture is in force everywhere.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation that the conditions speak of.
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

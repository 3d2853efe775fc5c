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
	// status is what the manager found.
	// +optional
	Status TenancyProfileStatus `json:"status,omitempty,omitzero"`
}

// TenancyProfileSpec is what holds for all tenants.
type TenancyProfileSpec struct {
	// platformNamespaces are where Flux and Tenure run. What a Kustomization or
	// HelmRelease of these namespaces applied is the platform's, unless it was
	// delegated to a tenant. Their service accounts have no rights by that: see
	// platformAccounts.
	// +optional
	// +listType=set
	// +kubebuilder:default={flux-system}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	PlatformNamespaces []string `json:"platformNamespaces,omitempty"`

	// platformAccounts are the service accounts, as NAMESPACE/NAME, that tenants' rules
	// do not hold back: those of Flux's controllers and of Tenure's manager. Whoever may
	// update TenancyProfiles need not be listed. An account that applies a tenant's
	// repository must not be.
	// +optional
	// +listType=set
	// +kubebuilder:default={"flux-system/source-controller","flux-system/kustomize-controller","flux-system/helm-controller","flux-system/notification-controller","flux-system/image-reflector-controller","flux-system/image-automation-controller","flux-system/source-watcher","flux-system/tenure-manager"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	PlatformAccounts []PlatformAccount `json:"platformAccounts,omitempty"`

	// delegatedSyncs are the Kustomizations and HelmReleases of platformNamespaces that
	// apply a tenant's repository, as an account that is not the platform's. What they
	// applied is the tenant's. What others of these namespaces applied to a tenant's
	// namespace is the platform's, and nobody else changes or deletes it.
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

	// protectedNamespaces are names that no owner of a tenant may give a namespace,
	// beside those of the platform and those that begin with kube-. In them, *
	// stands for any characters. The default has the names that well-known components
	// are installed under.
	// +optional
	// +listType=set
	// +kubebuilder:default={"*-system","*-operator","argocd","cert-manager","cert-manager-*","cilium*","external-dns","external-secrets","falco","flux-*","gatekeeper*","grafana","harbor","ingress-*","istio-*","karpenter*","keda","keycloak","knative-*","kyverno*","linkerd*","logging","monitoring","nginx-gateway","observability","olm","openshift-*","prometheus*","rook-ceph","sealed-secrets","tekton-*","traefik*","trivy*","vault","velero"}
	// +kubebuilder:validation:MaxItems=64
	ProtectedNamespaces []ValuePattern `json:"protectedNamespaces,omitempty"`

	// namespaceMetadata are the labels and annotations that owners of tenants may choose
	// for the namespaces that they make. Gateways, network policies and others select
	// namespaces by labels, so that each one here gives what is selected by it.
	// +optional
	// +kubebuilder:default={}
	NamespaceMetadata NamespaceMetadata `json:"namespaceMetadata,omitempty,omitzero"`

	// tenants is the posture towards every tenant that has none of its own.
	// +optional
	// +kubebuilder:default={}
	Tenants Posture `json:"tenants,omitempty,omitzero"`
}

// DelegatedSync is a Kustomization or HelmRelease that applies a tenant's repository.
type DelegatedSync struct {
	// tenant is the name of the tenant.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Tenant string `json:"tenant"`
	// namespace is the object's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name is the object's.
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

// NamespaceMetadata are names of labels and annotations, in which * stands for any
// characters.
type NamespaceMetadata struct {
	// labels by name. The default has those that Flux and Helm put on what they apply.
	// +optional
	// +listType=set
	// +kubebuilder:default={"app.kubernetes.io/managed-by","kustomize.toolkit.fluxcd.io/*","helm.toolkit.fluxcd.io/*"}
	// +kubebuilder:validation:MaxItems=32
	Labels []ValuePattern `json:"labels,omitempty"`
	// annotations by name. The default has those that kubectl, Flux and Helm put on what
	// they apply.
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
	// reason says why, for whoever reads the profile later.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
}

// TenancyProfileStatus is what the manager found.
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

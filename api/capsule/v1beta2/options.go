package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NamespaceOptions say how many namespaces a tenant may have, and how they look.
type NamespaceOptions struct {
	// quota is how many there may be.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Quota *int32 `json:"quota,omitempty"`
	// additionalMetadata is put on each namespace.
	// +optional
	AdditionalMetadata *Metadata `json:"additionalMetadata,omitempty"`
	// additionalMetadataList is put on the namespaces that the selectors fit.
	// +optional
	AdditionalMetadataList []SelectedMetadata `json:"additionalMetadataList,omitempty"`
	// requiredMetadata are labels and annotations that owners must give, each with
	// a regular expression for its value.
	// +optional
	RequiredMetadata *Metadata `json:"requiredMetadata,omitempty"`
	// forbiddenLabels are labels that owners must not give.
	// +optional
	ForbiddenLabels *ForbiddenList `json:"forbiddenLabels,omitempty"`
	// forbiddenAnnotations are annotations that owners must not give.
	// +optional
	ForbiddenAnnotations *ForbiddenList `json:"forbiddenAnnotations,omitempty"`
	// managedMetadataOnly lets owners give no other labels and annotations than
	// those that the tenant says.
	// +optional
	// +kubebuilder:default=false
	ManagedMetadataOnly bool `json:"managedMetadataOnly,omitempty"`
}

// Metadata are labels and annotations.
type Metadata struct {
	// labels by name.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations by name.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SelectedMetadata is for the namespaces that a selector fits.
type SelectedMetadata struct {
	Metadata `json:",inline"`
	// namespaceSelector says which namespaces; without it, all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// ForbiddenList are names that are forbidden, exactly or by regular expression.
type ForbiddenList struct {
	// denied are exact.
	// +optional
	Denied []string `json:"denied,omitempty"`
	// deniedRegex is a regular expression.
	// +optional
	DeniedRegex string `json:"deniedRegex,omitempty"`
}

// AllowedList are names that are allowed, exactly or by regular expression.
type AllowedList struct {
	// allowed are exact.
	// +optional
	Allowed []string `json:"allowed,omitempty"`
	// allowedRegex is a regular expression.
	// +optional
	AllowedRegex string `json:"allowedRegex,omitempty"`
}

// SelectorAllowedList allows by the labels of the object that is named, too.
type SelectorAllowedList struct {
	AllowedList          `json:",inline"`
	metav1.LabelSelector `json:",inline"`
}

// DefaultAllowedList also has a name for those who give none.
type DefaultAllowedList struct {
	SelectorAllowedList `json:",inline"`
	// default is the name for those who give none.
	// +optional
	Default string `json:"default,omitempty"`
}

// ImagePullPolicy is one that Pods may have.
//
// +kubebuilder:validation:Enum=Always;Never;IfNotPresent
type ImagePullPolicy string

// IngressOptions bound Ingresses.
type IngressOptions struct {
	// allowedClasses are those that an Ingress may name.
	// +optional
	AllowedClasses *DefaultAllowedList `json:"allowedClasses,omitempty"`
	// allowedHostnames are those that an Ingress may have.
	// +optional
	AllowedHostnames *AllowedList `json:"allowedHostnames,omitempty"`
	// hostnameCollisionScope is where a host may be used once.
	// +optional
	// +kubebuilder:default=Disabled
	// +kubebuilder:validation:Enum=Cluster;Tenant;Namespace;Disabled
	HostnameCollisionScope string `json:"hostnameCollisionScope,omitempty"`
	// allowWildcardHostnames allows hosts that begin with an asterisk.
	// +optional
	AllowWildcardHostnames bool `json:"allowWildcardHostnames,omitempty"`
}

// GatewayOptions bound Gateways.
type GatewayOptions struct {
	// allowedClasses are those that a Gateway may name.
	// +optional
	AllowedClasses *DefaultAllowedList `json:"allowedClasses,omitempty"`
}

// ServiceOptions bound Services.
type ServiceOptions struct {
	// additionalMetadata is put on each Service.
	// +optional
	AdditionalMetadata *Metadata `json:"additionalMetadata,omitempty"`
	// allowedServices are kinds of Services.
	// +optional
	AllowedServices *AllowedServices `json:"allowedServices,omitempty"`
	// externalIPs are those that a Service may have.
	// +optional
	ExternalIPs *ExternalIPs `json:"externalIPs,omitempty"`
	// forbiddenLabels are labels that owners must not give.
	// +optional
	ForbiddenLabels *ForbiddenList `json:"forbiddenLabels,omitempty"`
	// forbiddenAnnotations are annotations that owners must not give.
	// +optional
	ForbiddenAnnotations *ForbiddenList `json:"forbiddenAnnotations,omitempty"`
}

// AllowedServices are kinds of Services.
type AllowedServices struct {
	// nodePort allows type NodePort.
	// +optional
	// +kubebuilder:default=true
	NodePort *bool `json:"nodePort,omitempty"`
	// externalName allows type ExternalName.
	// +optional
	// +kubebuilder:default=true
	ExternalName *bool `json:"externalName,omitempty"`
	// loadBalancer allows type LoadBalancer.
	// +optional
	// +kubebuilder:default=true
	LoadBalancer *bool `json:"loadBalancer,omitempty"`
}

// ExternalIPs are addresses that a Service may have.
type ExternalIPs struct {
	// allowed are addresses and networks.
	// +required
	Allowed []string `json:"allowed"`
}

// PodOptions add to Pods.
type PodOptions struct {
	// additionalMetadata is put on each Pod.
	// +optional
	AdditionalMetadata *Metadata `json:"additionalMetadata,omitempty"`
}

package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NamespaceOptions limit the number of namespaces of a tenant, and define their metadata.
type NamespaceOptions struct {
	// quota is the maximum number of namespaces.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Quota *int32 `json:"quota,omitempty"`
	// additionalMetadata are labels and annotations of each namespace.
	// +optional
	AdditionalMetadata *Metadata `json:"additionalMetadata,omitempty"`
	// additionalMetadataList are labels and annotations of the namespaces that the selectors
	// select.
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
	// managedMetadataOnly allows owners only the labels and annotations that the Tenant
	// lists.
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

// SelectedMetadata are labels and annotations of the namespaces that a selector selects.
type SelectedMetadata struct {
	Metadata `json:",inline"`
	// namespaceSelector selects namespaces of the tenant. The default is all of them.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// ForbiddenList are forbidden names: exact names, and a regular expression.
type ForbiddenList struct {
	// denied are exact names.
	// +optional
	Denied []string `json:"denied,omitempty"`
	// deniedRegex is a regular expression.
	// +optional
	DeniedRegex string `json:"deniedRegex,omitempty"`
}

// AllowedList are allowed names: exact names, and a regular expression.
type AllowedList struct {
	// allowed are exact names.
	// +optional
	Allowed []string `json:"allowed,omitempty"`
	// allowedRegex is a regular expression.
	// +optional
	AllowedRegex string `json:"allowedRegex,omitempty"`
}

// SelectorAllowedList also allows the names of objects that a selector selects.
type SelectorAllowedList struct {
	AllowedList          `json:",inline"`
	metav1.LabelSelector `json:",inline"`
}

// DefaultAllowedList also has a default for objects that give no name.
type DefaultAllowedList struct {
	SelectorAllowedList `json:",inline"`
	// default is the name for objects that give none.
	// +optional
	Default string `json:"default,omitempty"`
}

// ImagePullPolicy is a pull policy that Pods may have.
//
// +kubebuilder:validation:Enum=Always;Never;IfNotPresent
type ImagePullPolicy string

// IngressOptions limit Ingresses.
type IngressOptions struct {
	// allowedClasses are the classes that an Ingress may name.
	// +optional
	AllowedClasses *DefaultAllowedList `json:"allowedClasses,omitempty"`
	// allowedHostnames are the host names that an Ingress may have.
	// +optional
	AllowedHostnames *AllowedList `json:"allowedHostnames,omitempty"`
	// hostnameCollisionScope is the scope in which only one Ingress may have a host name.
	// +optional
	// +kubebuilder:default=Disabled
	// +kubebuilder:validation:Enum=Cluster;Tenant;Namespace;Disabled
	HostnameCollisionScope string `json:"hostnameCollisionScope,omitempty"`
	// allowWildcardHostnames allows hosts that begin with an asterisk.
	// +optional
	AllowWildcardHostnames bool `json:"allowWildcardHostnames,omitempty"`
}

// GatewayOptions limit Gateways.
type GatewayOptions struct {
	// allowedClasses are the classes that a Gateway may name.
	// +optional
	AllowedClasses *DefaultAllowedList `json:"allowedClasses,omitempty"`
}

// ServiceOptions limit Services.
type ServiceOptions struct {
	// additionalMetadata are labels and annotations of each Service.
	// +optional
	AdditionalMetadata *Metadata `json:"additionalMetadata,omitempty"`
	// allowedServices allow types of Services.
	// +optional
	AllowedServices *AllowedServices `json:"allowedServices,omitempty"`
	// externalIPs are the external addresses that a Service may have.
	// +optional
	ExternalIPs *ExternalIPs `json:"externalIPs,omitempty"`
	// forbiddenLabels are labels that owners must not give.
	// +optional
	ForbiddenLabels *ForbiddenList `json:"forbiddenLabels,omitempty"`
	// forbiddenAnnotations are annotations that owners must not give.
	// +optional
	ForbiddenAnnotations *ForbiddenList `json:"forbiddenAnnotations,omitempty"`
}

// AllowedServices allow types of Services.
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

// PodOptions add labels and annotations to Pods.
type PodOptions struct {
	// additionalMetadata are labels and annotations of each Pod.
	// +optional
	AdditionalMetadata *Metadata `json:"additionalMetadata,omitempty"`
}

package v1alpha1

// TenantNamespaces says which namespaces a tenant has and how they look.
type TenantNamespaces struct {
	// create are namespaces that are made for the tenant. One that exists and is not
	// labelled as the tenant's is left alone, and the condition Ready says so.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.all(n, !n.startsWith('kube-') && n != 'default')",message="default and names that begin with kube- are Kubernetes' own"
	Create []string `json:"create,omitempty"`

	// quota is how many namespaces the tenant may have before its owners are
	// refused another one; 0 leaves them the namespaces that are made for them.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Quota *int32 `json:"quota,omitempty"`

	// prefix says whether the names of namespaces that owners make must begin with the
	// tenant's name and a hyphen. Where it is false, a name needs a hyphen all the same:
	// the resolver of a Pod would take one without for a top-level domain. A name that
	// begins with the name of another tenant is refused in any case.
	// +optional
	// +kubebuilder:default=true
	Prefix *bool `json:"prefix,omitempty"`

	// podSecurity is the Pod Security level of the namespaces, which owners
	// cannot change.
	// +optional
	// +kubebuilder:default=baseline
	// +kubebuilder:validation:Enum=privileged;baseline;restricted
	PodSecurity string `json:"podSecurity,omitempty"`

	// labels are on each of the tenant's namespaces, and owners cannot change them.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'))",message="a label's name is at most 63 letters, digits, dots, hyphens and underscores, with a DNS name and a / before it or not"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tenure.dev/') && !k.startsWith('kubernetes.io/') && !k.startsWith('pod-security.kubernetes.io/enforce'))",message="labels of tenure.dev and kubernetes.io are not yours to set, and the Pod Security level is given in podSecurity"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(self[k]) <= 63)",message="a label's value is at most 63 letters, digits, dots, hyphens and underscores"
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are on each of the tenant's namespaces, and owners cannot change
	// them.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'))",message="an annotation's name is at most 63 letters, digits, dots, hyphens and underscores, with a DNS name and a / before it or not"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tenure.dev/'))",message="annotations of tenure.dev are not yours to set"
	Annotations map[string]string `json:"annotations,omitempty"`

	// required are labels and annotations that owners must give a namespace.
	// +optional
	Required RequiredMetadata `json:"required,omitempty,omitzero"`

	// allowed are labels and annotations that owners may give a namespace, beside those
	// of the TenancyProfile, those that are required, and the tenant's own values.
	// +optional
	Allowed AllowedMetadata `json:"allowed,omitempty,omitzero"`

	// forbidden are labels and annotations that owners must not give a namespace.
	// +optional
	Forbidden ForbiddenMetadata `json:"forbidden,omitempty,omitzero"`
}

// defaultNamespaces is the quota where the schema has not set one.
const defaultNamespaces = 100

// Limit is how many namespaces the tenant may have.
func (n *TenantNamespaces) Limit() int {
	if n.Quota == nil {
		return defaultNamespaces
	}
	return int(*n.Quota)
}

// Prefixed says whether the names that owners give namespaces begin with the tenant's.
func (n *TenantNamespaces) Prefixed() bool { return n.Prefix == nil || *n.Prefix }

// AllowedMetadata are names of labels and annotations that owners may choose, in which *
// stands for any characters.
type AllowedMetadata struct {
	// labels by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Labels []ValuePattern `json:"labels,omitempty"`
	// annotations by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Annotations []ValuePattern `json:"annotations,omitempty"`
}

// RequiredMetadata are labels and annotations by name, each with a pattern for
// its value, in which * stands for any characters.
type RequiredMetadata struct {
	// labels by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]ValuePattern `json:"labels,omitempty"`
	// annotations by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]ValuePattern `json:"annotations,omitempty"`
}

// ForbiddenMetadata are names of labels and annotations, in which * stands for
// any characters.
type ForbiddenMetadata struct {
	// labels by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Labels []ValuePattern `json:"labels,omitempty"`
	// annotations by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Annotations []ValuePattern `json:"annotations,omitempty"`
}

// ValuePattern is text in which * stands for any characters.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9*]([A-Za-z0-9*._/-]*[A-Za-z0-9*])?$`
type ValuePattern string

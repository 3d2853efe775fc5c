package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantNamespaces defines which namespaces a tenant has, and their labels and
// annotations.
type TenantNamespaces struct {
	// create lists namespaces that the manager creates for the tenant. The manager does
	// not change an existing namespace that lacks the tenant's label, and reports it in
	// the condition Ready.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.all(n, !n.startsWith('kube-') && n != 'default')",message="default and names that begin with kube- are Kubernetes' own"
	Create []string `json:"create,omitempty"`

	// quota is the maximum number of namespaces of the tenant: owners of a tenant with
	// that many cannot create another one. With 0, the tenant has only the namespaces
	// that the manager creates for it.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Quota *int32 `json:"quota,omitempty"`

	// prefix requires that the names of namespaces that owners create begin with the
	// tenant's name and a hyphen. If it is false, a name still needs a hyphen,
	// unless domainNames of the TenancyProfile is Allowed.
	// Owners can never use a name that begins with the name of another tenant.
	// +optional
	// +kubebuilder:default=true
	Prefix *bool `json:"prefix,omitempty"`

	// forbiddenNameExpression is a regular expression in the syntax of RE2. Owners cannot
	// use a name for a namespace if the expression matches a part of the name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="'x'.matches(self) || !'x'.matches(self)",message="forbiddenNameExpression is not a regular expression in the syntax of RE2"
	ForbiddenNameExpression string `json:"forbiddenNameExpression,omitempty"`

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

	// selected are labels and annotations for the namespaces that a selector matches. The first
	// entry with a key wins, and labels and annotations win over all entries.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Selected []SelectedMetadata `json:"selected,omitempty"`

	// required are labels and annotations that owners must give a namespace.
	// +optional
	Required RequiredMetadata `json:"required,omitempty,omitzero"`

	// allowed are labels and annotations that owners may give a namespace, in addition to
	// the list of the TenancyProfile, the required ones, and the tenant's own.
	// +optional
	Allowed AllowedMetadata `json:"allowed,omitempty,omitzero"`

	// forbidden are labels and annotations that owners must not give a namespace.
	// +optional
	Forbidden ForbiddenMetadata `json:"forbidden,omitempty,omitzero"`
}

// defaultNamespaces is the quota where the schema has not set one.
const defaultNamespaces = 100

// Limit returns the maximum number of namespaces of the tenant.
func (n *TenantNamespaces) Limit() int {
	if n.Quota == nil {
		return defaultNamespaces
	}
	return int(*n.Quota)
}

// Prefixed reports whether the names that owners give namespaces must begin with the
// tenant's name.
func (n *TenantNamespaces) Prefixed() bool { return n.Prefix == nil || *n.Prefix }

// AllowedMetadata lists names of labels and annotations that owners may choose, in which
// * matches any characters.
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

// RequiredMetadata lists labels and annotations by name, each with a pattern for its
// value, in which * matches any characters.
type RequiredMetadata struct {
	// labels by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]ValuePattern `json:"labels,omitempty"`
	// annotations by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]ValuePattern `json:"annotations,omitempty"`
	// labelExpressions are labels by name, each with an expression that has to match a part of
	// the value.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	LabelExpressions map[string]Expression `json:"labelExpressions,omitempty"`
	// annotationExpressions are annotations by name, each with an expression as for labels.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	AnnotationExpressions map[string]Expression `json:"annotationExpressions,omitempty"`
}

// ForbiddenMetadata lists names of labels and annotations, in which * matches any
// characters.
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
	// labelExpression forbids the labels of which it matches a part of the name.
	// +optional
	LabelExpression Expression `json:"labelExpression,omitempty"`
	// annotationExpression forbids the annotations of which it matches a part of the name.
	// +optional
	AnnotationExpression Expression `json:"annotationExpression,omitempty"`
}

// SelectedMetadata are labels and annotations for the namespaces that a selector matches. In
// their values, {{ tenant.name }} is the name of the tenant, and {{ namespace }} is the name
// of the namespace.
type SelectedMetadata struct {
	// selector selects namespaces by their labels. Without it, the entry is for all namespaces
	// of the tenant. If owners may choose a label that it reads, they decide which of their
	// namespaces it matches.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// labels by name. The Pod Security level can be raised to restricted.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tenure.dev/') && !k.startsWith('kubernetes.io/') && (!k.startsWith('pod-security.kubernetes.io/enforce') || k == 'pod-security.kubernetes.io/enforce' && self[k] == 'restricted'))",message="labels of tenure.dev and kubernetes.io are not yours to set, and the Pod Security level can be restricted only"
	Labels map[string]string `json:"labels,omitempty"`
	// annotations by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('tenure.dev/'))",message="annotations of tenure.dev are not yours to set"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ValuePattern is text in which * matches any characters.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9*]([A-Za-z0-9*._/-]*[A-Za-z0-9*])?$`
type ValuePattern string

// Expression is a regular expression in the syntax of RE2. It matches a text if it matches a part
// of it.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="'x'.matches(self) || !'x'.matches(self)",message="it is not a regular expression in the syntax of RE2"
type Expression string

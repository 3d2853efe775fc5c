package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SourceGrant lets other namespaces use sources of its own namespace. The manager creates
// an ExternalArtifact named NAMESPACE.SOURCE in each of them, which follows the source.
// Kustomizations and HelmReleases there name it in sourceRef or chartRef. The source's
// credentials stay in its namespace.
//
// The right to write SourceGrants in a namespace is the right to share its sources. The role
// of tenants does not include it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=tenure
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Consumers",type=integer,JSONPath=`.status.consumerCount`
// +kubebuilder:printcolumn:name="Expires",type=date,JSONPath=`.spec.expires`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SourceGrant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec lists the sources and the namespaces that may use them.
	// +required
	Spec SourceGrantSpec `json:"spec"`
	// status is the observed state.
	// +optional
	Status SourceGrantStatus `json:"status,omitempty,omitzero"`
}

// SourceGrantSpec lists the sources and the namespaces that may use them, in the shape of
// Gateway API's ReferenceGrant.
type SourceGrantSpec struct {
	// to are the shared sources.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	To []GrantedSource `json:"to"`

	// from selects the namespaces that may use the sources: all namespaces that at least
	// one entry selects.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	From []GrantedConsumers `json:"from"`

	// expires is the time at which the grant ends.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
}

// GrantedSource is a source in the grant's namespace.
type GrantedSource struct {
	// kind is the kind of the source.
	// +required
	// +kubebuilder:validation:Enum=GitRepository;OCIRepository;Bucket;HelmChart
	Kind string `json:"kind"`
	// name is the name of the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// GrantedConsumers selects namespaces: all namespaces of a tenant, one namespace of a
// tenant by tenant and namespace, a namespace that belongs to no tenant by namespace
// alone, or namespaces of tenants by their labels.
//
// +kubebuilder:validation:XValidation:rule="has(self.namespaceSelector) != (has(self.tenant) || has(self.__namespace__))",message="give tenant, namespace, or both; or namespaceSelector alone"
type GrantedConsumers struct {
	// tenant is the name of a tenant. It selects all of the tenant's namespaces, or only
	// the one that namespace names.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Tenant string `json:"tenant,omitempty"`
	// namespace is the name of one namespace. A tenant's namespace is selected only if
	// tenant names the tenant as well: owners choose the names of their namespaces.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// namespaceSelector selects tenants' namespaces by their labels; an empty selector
	// selects all of them. In a namespace that an owner created, it considers only the
	// labels that the Tenant lists in spec.namespaces.labels, and labels that owners
	// cannot set.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// SourceGrantStatus is the state of a grant that the manager observed.
type SourceGrantStatus struct {
	// conditions: Ready is True if all consumers have copies of all sources.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// consumerCount is the number of namespaces that may use the sources.
	// +optional
	ConsumerCount int32 `json:"consumerCount,omitempty"`
	// consumers are these namespaces by name, at most 1000 of them.
	// +optional
	// +listType=set
	Consumers []string `json:"consumers,omitempty"`
}

// SourceGrantList is a list of SourceGrants.
//
// +kubebuilder:object:root=true
type SourceGrantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SourceGrant `json:"items"`
}

package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantOwner is an owner of each Tenant that selects it by its labels, in
// spec.permissions.matchOwners.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TenantOwner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state: one owner of Tenants.
	// +optional
	Spec TenantOwnerSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status TenantOwnerStatus `json:"status,omitempty,omitzero"`
}

// TenantOwnerSpec is one owner of Tenants.
type TenantOwnerSpec struct {
	Identity `json:",inline"`
	// clusterRoles are the roles that the owner has in each of the tenants' namespaces.
	// +optional
	// +kubebuilder:default={admin,capsule-namespace-deleter}
	ClusterRoles []string `json:"clusterRoles,omitempty"`
	// aggregate lists the owner among the users of the CapsuleConfiguration.
	// +optional
	// +kubebuilder:default=true
	Aggregate *bool `json:"aggregate,omitempty"`
}

// TenantOwnerStatus is the observed state of a TenantOwner.
type TenantOwnerStatus struct {
	// observedGeneration is the generation that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// tenants are the Tenants that select the owner, by name.
	// +optional
	Tenants []string `json:"tenants,omitempty"`
	// conditions: Ready is True if Tenants can have the owner.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantOwnerList is a list of TenantOwners.
//
// +kubebuilder:object:root=true
type TenantOwnerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantOwner `json:"items"`
}

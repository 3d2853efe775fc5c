package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TenantResource replicates objects into the namespaces of a tenant. The tenant writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=tr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Items",type=integer,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TenantResource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the objects and the namespaces that get them.
	// +optional
	Spec TenantResourceSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status TenantResourceStatus `json:"status,omitempty,omitzero"`
}

// TenantResourceSpec defines the objects and the namespaces that get them.
type TenantResourceSpec struct {
	ReplicationSpec `json:",inline"`
	// serviceAccount is the account that applies the objects. It is in the namespace of
	// the TenantResource.
	// +optional
	ServiceAccount *AccountName `json:"serviceAccount,omitempty"`
}

// GlobalTenantResource replicates objects into the namespaces of tenants. A platform admin
// writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=gtr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Items",type=integer,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GlobalTenantResource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the objects and the namespaces that get them.
	// +optional
	Spec GlobalTenantResourceSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status GlobalTenantResourceStatus `json:"status,omitempty,omitzero"`
}

// GlobalTenantResourceSpec defines the objects, and the tenants and namespaces that get
// them.
type GlobalTenantResourceSpec struct {
	ReplicationSpec `json:",inline"`
	// scope defines whether an object is created once for each namespace, for each tenant,
	// or for the cluster.
	// +optional
	// +kubebuilder:default=Namespace
	// +kubebuilder:validation:Enum=Namespace;Tenant;None
	Scope string `json:"scope,omitempty"`
	// tenantSelector selects tenants by the labels of Tenants.
	// +optional
	TenantSelector metav1.LabelSelector `json:"tenantSelector,omitempty,omitzero"`
	// serviceAccount is the account that applies the objects.
	// +optional
	ServiceAccount *Account `json:"serviceAccount,omitempty"`
}

// ReplicationSpec has the fields of both kinds.
type ReplicationSpec struct {
	// resources are the objects, each with the namespaces that get it.
	// +required
	Resources []Replicated `json:"resources"`
	// resyncPeriod is the interval at which the objects are compared and restored.
	// +optional
	// +kubebuilder:default="60s"
	ResyncPeriod string `json:"resyncPeriod,omitempty"`
	// pruningOnDelete deletes the objects when this object is deleted.
	// +optional
	// +kubebuilder:default=true
	PruningOnDelete *bool `json:"pruningOnDelete,omitempty"`
	// cordoned stops the replication.
	// +optional
	// +kubebuilder:default=false
	Cordoned bool `json:"cordoned,omitempty"`
	// dependsOn are objects of the same kind that must be ready first.
	// +optional
	DependsOn []AccountName `json:"dependsOn,omitempty"`
	// settings define how objects are applied.
	// +optional
	// +kubebuilder:default={}
	Settings ReplicationSettings `json:"settings,omitempty,omitzero"`
}

// ReplicationSettings define how objects are applied.
type ReplicationSettings struct {
	// adopt allows changes to objects that existed before.
	// +optional
	// +kubebuilder:default=false
	Adopt bool `json:"adopt,omitempty"`
	// force takes over fields that other field managers own.
	// +optional
	// +kubebuilder:default=false
	Force bool `json:"force,omitempty"`
}

// Replicated are objects and the namespaces that get them.
type Replicated struct {
	// namespaceSelector selects namespaces of the tenant. The default is all of them.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// additionalMetadata are labels and annotations of each object.
	// +optional
	AdditionalMetadata *Metadata `json:"additionalMetadata,omitempty"`
	// namespacedItems are existing objects to copy.
	// +optional
	NamespacedItems []ObjectReference `json:"namespacedItems,omitempty"`
	// rawItems are complete objects.
	// +optional
	RawItems []RawItem `json:"rawItems,omitempty"`
	// generators are templates of objects.
	// +optional
	Generators []Generator `json:"generators,omitempty"`
	// context selects the objects that templates can read.
	// +optional
	Context *TemplateContext `json:"context,omitempty"`
}

// ObjectReference selects existing objects.
type ObjectReference struct {
	// apiVersion is the API version of the objects.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is the kind of the objects.
	// +required
	Kind string `json:"kind"`
	// name is the name of one object.
	// +optional
	Name string `json:"name,omitempty"`
	// namespace is the namespace of the objects.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// selector selects several objects by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// optional ignores missing objects.
	// +optional
	// +kubebuilder:default=true
	Optional *bool `json:"optional,omitempty"`
}

// RawItem is a complete object.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XEmbeddedResource
type RawItem struct {
	runtime.RawExtension `json:",inline"`
}

// Generator is a template of objects.
type Generator struct {
	// template is the text.
	// +optional
	Template string `json:"template,omitempty"`
	// missingKey defines the value of a missing key in the template.
	// +optional
	// +kubebuilder:default=zero
	// +kubebuilder:validation:Enum=invalid;zero;error
	MissingKey string `json:"missingKey,omitempty"`
}

// TemplateContext selects the objects that templates can read.
type TemplateContext struct {
	// resources are objects.
	// +optional
	Resources []ContextResource `json:"resources,omitempty"`
}

// ContextResource are objects that templates can read.
type ContextResource struct {
	ObjectReference `json:",inline"`
	// index is the name that templates use.
	// +optional
	Index string `json:"index,omitempty"`
}

// AccountName names a service account in the same namespace.
type AccountName struct {
	// name is the name of the account.
	// +required
	Name string `json:"name"`
}

// Account names a service account.
type Account struct {
	// name is the name of the account.
	// +required
	Name string `json:"name"`
	// namespace is the namespace of the account.
	// +required
	Namespace string `json:"namespace"`
}

// TenantResourceStatus is the observed state of a TenantResource.
type TenantResourceStatus struct {
	// size is the number of objects.
	// +required
	Size int32 `json:"size"`
	// serviceAccount is the account that applied the objects.
	// +optional
	ServiceAccount *Account `json:"serviceAccount,omitempty"`
	// observedGeneration is the generation that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready is True if all objects are in place; Honoured, if every field has
	// its effect.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// processedItems are the first 1024 of the objects, each with its state.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	ProcessedItems []ProcessedItem `json:"processedItems,omitempty"`
	// inventory are the objects that were replicated.
	// +optional
	// +listType=atomic
	Inventory []ReplicatedObject `json:"inventory,omitempty"`
}

// ProcessedItem is an object and its state.
type ProcessedItem struct {
	// group is the API group of the object.
	// +optional
	Group string `json:"group,omitempty"`
	// version is the version of the group.
	// +optional
	Version string `json:"version,omitempty"`
	// kind is the object's.
	// +optional
	Kind string `json:"kind,omitempty"`
	// name is the object's.
	// +optional
	Name string `json:"name,omitempty"`
	// namespace is the object's.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// tenant is the tenant of the namespace.
	// +optional
	Tenant string `json:"tenant,omitempty"`
	// origin is the list of spec.resources that the object comes from.
	// +optional
	Origin string `json:"origin,omitempty"`
	// status reports whether the object is in place.
	// +optional
	Status ProcessedStatus `json:"status,omitempty,omitzero"`
}

// ProcessedStatus reports whether an object is in place.
type ProcessedStatus struct {
	// type is Ready.
	// +required
	Type string `json:"type"`
	// status is True if the object is in place.
	// +required
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status metav1.ConditionStatus `json:"status"`
	// created is true if the object did not exist before.
	// +optional
	Created bool `json:"created,omitempty"`
	// clusterScoped is true if the object is in no namespace.
	// +optional
	ClusterScoped bool `json:"clusterScoped,omitempty"`
	// message is the reason why the object is not in place.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
}

// ReplicatedObject is a replicated object, with the namespaces that have it.
type ReplicatedObject struct {
	// apiVersion is the object's.
	// +required
	APIVersion string `json:"apiVersion"`
	// kind is the object's.
	// +required
	Kind string `json:"kind"`
	// name is the object's.
	// +required
	Name string `json:"name"`
	// serviceAccount is the name of the account that applied it and removes it.
	// +required
	ServiceAccount string `json:"serviceAccount"`
	// serviceAccountNamespace is the account's namespace. The default is the object's
	// namespace.
	// +optional
	ServiceAccountNamespace string `json:"serviceAccountNamespace,omitempty"`
	// namespaces are the namespaces that have the object.
	// +required
	// +listType=set
	Namespaces []string `json:"namespaces"`
}

// GlobalTenantResourceStatus is the observed state of a GlobalTenantResource.
type GlobalTenantResourceStatus struct {
	TenantResourceStatus `json:",inline"`
	// selectedTenants are the tenants that the selector selects.
	// +optional
	SelectedTenants []string `json:"selectedTenants,omitempty"`
}

// TenantResourceList is a list of TenantResources.
//
// +kubebuilder:object:root=true
type TenantResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantResource `json:"items"`
}

// GlobalTenantResourceList is a list of GlobalTenantResources.
//
// +kubebuilder:object:root=true
type GlobalTenantResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GlobalTenantResource `json:"items"`
}

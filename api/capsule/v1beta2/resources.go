package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TenantResource are objects that a tenant wants in its namespaces.
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

	// spec is what is replicated.
	// +optional
	Spec TenantResourceSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status TenantResourceStatus `json:"status,omitempty,omitzero"`
}

// TenantResourceSpec is what is replicated.
type TenantResourceSpec struct {
	ReplicationSpec `json:",inline"`
	// serviceAccount applies the objects; it is in the same namespace.
	// +optional
	ServiceAccount *AccountName `json:"serviceAccount,omitempty"`
}

// GlobalTenantResource are objects that a platform admin wants in tenants'
// namespaces.
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

	// spec is what is replicated.
	// +optional
	Spec GlobalTenantResourceSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status GlobalTenantResourceStatus `json:"status,omitempty,omitzero"`
}

// GlobalTenantResourceSpec is what is replicated, and for which tenants.
type GlobalTenantResourceSpec struct {
	ReplicationSpec `json:",inline"`
	// scope says for what an object is made once: each namespace, each tenant, or
	// the cluster.
	// +optional
	// +kubebuilder:default=Namespace
	// +kubebuilder:validation:Enum=Namespace;Tenant;None
	Scope string `json:"scope,omitempty"`
	// tenantSelector says which tenants, by the labels of Tenants.
	// +optional
	TenantSelector metav1.LabelSelector `json:"tenantSelector,omitempty,omitzero"`
	// serviceAccount applies the objects.
	// +optional
	ServiceAccount *Account `json:"serviceAccount,omitempty"`
}

// ReplicationSpec is what both kinds have.
type ReplicationSpec struct {
	// resources are the objects, each with the namespaces that get it.
	// +required
	Resources []Replicated `json:"resources"`
	// resyncPeriod is how often they are looked at.
	// +optional
	// +kubebuilder:default="60s"
	ResyncPeriod string `json:"resyncPeriod,omitempty"`
	// pruningOnDelete removes the objects with this one.
	// +optional
	// +kubebuilder:default=true
	PruningOnDelete *bool `json:"pruningOnDelete,omitempty"`
	// cordoned stops the replication.
	// +optional
	// +kubebuilder:default=false
	Cordoned bool `json:"cordoned,omitempty"`
	// dependsOn are others of the kind that come first.
	// +optional
	DependsOn []AccountName `json:"dependsOn,omitempty"`
	// settings say how objects are written.
	// +optional
	// +kubebuilder:default={}
	Settings ReplicationSettings `json:"settings,omitempty,omitzero"`
}

// ReplicationSettings say how objects are written.
type ReplicationSettings struct {
	// adopt takes over objects that are there.
	// +optional
	// +kubebuilder:default=false
	Adopt bool `json:"adopt,omitempty"`
	// force takes over fields of others.
	// +optional
	// +kubebuilder:default=false
	Force bool `json:"force,omitempty"`
}

// Replicated are objects and the namespaces that get them.
type Replicated struct {
	// namespaceSelector says which of the tenant's namespaces; without it, all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// additionalMetadata is put on each object.
	// +optional
	AdditionalMetadata *Metadata `json:"additionalMetadata,omitempty"`
	// namespacedItems are objects that are there.
	// +optional
	NamespacedItems []ObjectReference `json:"namespacedItems,omitempty"`
	// rawItems are objects as they are.
	// +optional
	RawItems []RawItem `json:"rawItems,omitempty"`
	// generators are templates of objects.
	// +optional
	Generators []Generator `json:"generators,omitempty"`
	// context is what templates can read.
	// +optional
	Context *TemplateContext `json:"context,omitempty"`
}

// ObjectReference names objects that are there.
type ObjectReference struct {
	// apiVersion is the objects'.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is the objects'.
	// +required
	Kind string `json:"kind"`
	// name is that of one.
	// +optional
	Name string `json:"name,omitempty"`
	// namespace is where they are.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// selector chooses several.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// optional lets them be missing.
	// +optional
	// +kubebuilder:default=true
	Optional *bool `json:"optional,omitempty"`
}

// RawItem is an object as it is.
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
	// missingKey says what a name stands for that is not there.
	// +optional
	// +kubebuilder:default=zero
	// +kubebuilder:validation:Enum=invalid;zero;error
	MissingKey string `json:"missingKey,omitempty"`
}

// TemplateContext is what templates can read.
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

// AccountName names something in the same namespace.
type AccountName struct {
	// name is its name.
	// +required
	Name string `json:"name"`
}

// Account names a service account.
type Account struct {
	// name is the account's.
	// +required
	Name string `json:"name"`
	// namespace is the account's.
	// +required
	Namespace string `json:"namespace"`
}

// TenantResourceStatus is what became of it.
type TenantResourceStatus struct {
	// size is the number of objects.
	// +required
	Size int32 `json:"size"`
	// serviceAccount has applied them.
	// +optional
	ServiceAccount *Account `json:"serviceAccount,omitempty"`
	// observedGeneration is the generation that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say what is wrong.
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
	// tenant has the namespace.
	// +optional
	Tenant string `json:"tenant,omitempty"`
	// origin is the list of spec.resources that the object comes from.
	// +optional
	Origin string `json:"origin,omitempty"`
	// status says whether the object is in place.
	// +optional
	Status ProcessedStatus `json:"status,omitempty,omitzero"`
}

// ProcessedStatus says whether an object is in place.
type ProcessedStatus struct {
	// type is Ready.
	// +required
	Type string `json:"type"`
	// status is True if the object is in place.
	// +required
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status metav1.ConditionStatus `json:"status"`
	// created says that the object did not exist before.
	// +optional
	Created bool `json:"created,omitempty"`
	// message says why the object is not in place.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
}

// ReplicatedObject is an object that was replicated, by the namespaces that have it.
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
	// serviceAccountNamespace is the account's namespace; without it, the object's.
	// +optional
	ServiceAccountNamespace string `json:"serviceAccountNamespace,omitempty"`
	// namespaces have it.
	// +required
	// +listType=set
	Namespaces []string `json:"namespaces"`
}

// GlobalTenantResourceStatus is what became of it.
type GlobalTenantResourceStatus struct {
	TenantResourceStatus `json:",inline"`
	// selectedTenants are those that the selector fits.
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

package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConfigurationName is the name of the only CapsuleConfiguration that counts.
const ConfigurationName = "default"

// CapsuleConfiguration is what holds for all of Capsule's tenants. Only the one
// called default counts.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CapsuleConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what holds for all tenants.
	// +optional
	Spec CapsuleConfigurationSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status CapsuleConfigurationStatus `json:"status,omitempty,omitzero"`
}

// CapsuleConfigurationSpec is what holds for all tenants.
type CapsuleConfigurationSpec struct {
	// userGroups are groups whose members Capsule looks at.
	// +optional
	UserGroups []string `json:"userGroups,omitempty"`
	// userNames are users whom Capsule looks at.
	// +optional
	UserNames []string `json:"userNames,omitempty"`
	// users are whom Capsule looks at.
	// +optional
	Users []Identity `json:"users,omitempty"`
	// ignoreUserWithGroups are groups whose members Capsule does not look at.
	// +optional
	IgnoreUserWithGroups []string `json:"ignoreUserWithGroups,omitempty"`
	// administrators may do everything with every tenant.
	// +optional
	Administrators []Identity `json:"administrators,omitempty"`
	// forceTenantPrefix makes the names of owners' namespaces begin with the name
	// of the tenant and a hyphen.
	// +optional
	// +kubebuilder:default=false
	ForceTenantPrefix bool `json:"forceTenantPrefix,omitempty"`
	// protectedNamespaceRegex is a regular expression for names that no owner may
	// give a namespace.
	// +optional
	ProtectedNamespaceRegex string `json:"protectedNamespaceRegex,omitempty"`
	// allowServiceAccountPromotion lets owners make service accounts owners.
	// +optional
	// +kubebuilder:default=false
	AllowServiceAccountPromotion bool `json:"allowServiceAccountPromotion,omitempty"`
	// nodeMetadata is what owners may not write on nodes.
	// +optional
	NodeMetadata *NodeMetadata `json:"nodeMetadata,omitempty"`
	// overrides are names of objects of Capsule's own.
	// +optional
	// +kubebuilder:default={TLSSecretName: "capsule-tls", mutatingWebhookConfigurationName: "capsule-mutating-webhook-configuration", validatingWebhookConfigurationName: "capsule-validating-webhook-configuration"}
	Overrides Overrides `json:"overrides,omitempty,omitzero"`
	// rbac are the names of cluster roles.
	// +optional
	// +kubebuilder:default={}
	RBAC RBAC `json:"rbac,omitempty,omitzero"`
	// enableTLSReconciler lets Capsule make its own certificates.
	// +optional
	// +kubebuilder:default=false
	EnableTLSReconciler bool `json:"enableTLSReconciler"`
	// cacheInvalidation is how long Capsule keeps what it read.
	// +optional
	// +kubebuilder:default="24h"
	CacheInvalidation string `json:"cacheInvalidation,omitempty"`
	// impersonation is how Capsule replicates objects as somebody else.
	// +optional
	Impersonation *Impersonation `json:"impersonation,omitempty"`
	// admission is how Capsule writes its webhooks.
	// +optional
	Admission *Unknown `json:"admission,omitempty"`
	// events are Capsule's own.
	// +optional
	// +kubebuilder:default={namespace: "default"}
	Events Events `json:"events,omitempty,omitzero"`
}

// NodeMetadata is what owners may not write on nodes.
type NodeMetadata struct {
	// forbiddenLabels are labels that owners must not give.
	// +optional
	ForbiddenLabels *ForbiddenList `json:"forbiddenLabels,omitempty"`
	// forbiddenAnnotations are annotations that owners must not give.
	// +optional
	ForbiddenAnnotations *ForbiddenList `json:"forbiddenAnnotations,omitempty"`
}

// Overrides are names of objects of Capsule's own.
type Overrides struct {
	// TLSSecretName is the Secret with its certificate.
	// +optional
	// +kubebuilder:default=capsule-tls
	TLSSecretName string `json:"TLSSecretName,omitempty"`
	// mutatingWebhookConfigurationName is the configuration's name.
	// +optional
	// +kubebuilder:default=capsule-mutating-webhook-configuration
	MutatingWebhookConfigurationName string `json:"mutatingWebhookConfigurationName,omitempty"`
	// validatingWebhookConfigurationName is the configuration's name.
	// +optional
	// +kubebuilder:default=capsule-validating-webhook-configuration
	ValidatingWebhookConfigurationName string `json:"validatingWebhookConfigurationName,omitempty"`
}

// RBAC are the names of cluster roles.
type RBAC struct {
	// administrationClusterRoles are the administrators'.
	// +optional
	// +kubebuilder:default={capsule-namespace-deleter}
	AdministrationClusterRoles []string `json:"administrationClusterRoles,omitempty"`
	// promotionClusterRoles are those of promoted service accounts.
	// +optional
	// +kubebuilder:default={capsule-namespace-provisioner,capsule-namespace-deleter}
	PromotionClusterRoles []string `json:"promotionClusterRoles,omitempty"`
	// deleter is the role to delete namespaces.
	// +optional
	// +kubebuilder:default=capsule-namespace-deleter
	Deleter string `json:"deleter,omitempty"`
	// provisioner is the role to make namespaces.
	// +optional
	// +kubebuilder:default=capsule-namespace-provisioner
	Provisioner string `json:"provisioner,omitempty"`
}

// Impersonation is how Capsule replicates objects as somebody else.
type Impersonation struct {
	// endpoint is the API server's address.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// caSecretName is the Secret with the API server's authority.
	// +optional
	CASecretName string `json:"caSecretName,omitempty"`
	// caSecretNamespace is where it is.
	// +optional
	CASecretNamespace string `json:"caSecretNamespace,omitempty"`
	// caSecretKey is the field in it.
	// +optional
	// +kubebuilder:default=ca.crt
	CASecretKey string `json:"caSecretKey,omitempty"`
	// skipTlsVerify believes every API server.
	// +optional
	// +kubebuilder:default=false
	SkipTLSVerify bool `json:"skipTlsVerify,omitempty"`
	// globalDefaultServiceAccount is for GlobalTenantResources that name none.
	// +optional
	GlobalDefaultServiceAccount string `json:"globalDefaultServiceAccount,omitempty"`
	// globalDefaultServiceAccountNamespace is where it is.
	// +optional
	GlobalDefaultServiceAccountNamespace string `json:"globalDefaultServiceAccountNamespace,omitempty"`
	// tenantDefaultServiceAccount is for TenantResources that name none.
	// +optional
	TenantDefaultServiceAccount string `json:"tenantDefaultServiceAccount,omitempty"`
}

// Events are Capsule's own.
type Events struct {
	// namespace is where events about cluster-scoped objects go.
	// +optional
	// +kubebuilder:default=default
	Namespace string `json:"namespace,omitempty"`
}

// CapsuleConfigurationStatus is what became of a CapsuleConfiguration.
type CapsuleConfigurationStatus struct {
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// tenants are all of Capsule's, by name.
	// +optional
	Tenants []string `json:"tenants,omitempty"`
	// users are the users and groups of the spec, and the TenantOwners with aggregate. They
	// have no rights by that: owners are those that Tenants name or select.
	// +optional
	Users []Identity `json:"users,omitempty"`
	// conditions: Ready says whether it is in force; Honoured, whether every field
	// of it is.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CapsuleConfigurationList is a list of CapsuleConfigurations.
//
// +kubebuilder:object:root=true
type CapsuleConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CapsuleConfiguration `json:"items"`
}

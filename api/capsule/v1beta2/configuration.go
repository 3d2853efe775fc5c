package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConfigurationName is the name of the only CapsuleConfiguration that has an effect.
const ConfigurationName = "default"

// CapsuleConfiguration configures all of Capsule's tenants. Only the CapsuleConfiguration
// with the name default has an effect.
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

	// spec configures all tenants.
	// +optional
	Spec CapsuleConfigurationSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status CapsuleConfigurationStatus `json:"status,omitempty,omitzero"`
}

// CapsuleConfigurationSpec configures all tenants.
type CapsuleConfigurationSpec struct {
	// userGroups are groups whose members are users of Capsule.
	// +optional
	UserGroups []string `json:"userGroups,omitempty"`
	// userNames are the names of users of Capsule.
	// +optional
	UserNames []string `json:"userNames,omitempty"`
	// users are users of Capsule.
	// +optional
	Users []Identity `json:"users,omitempty"`
	// ignoreUserWithGroups are groups whose members are no users of Capsule.
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
	// nodeMetadata are the labels and annotations of nodes that owners may not write.
	// +optional
	NodeMetadata *NodeMetadata `json:"nodeMetadata,omitempty"`
	// overrides are names of Capsule's own objects.
	// +optional
	// +kubebuilder:default={TLSSecretName: "capsule-tls", mutatingWebhookConfigurationName: "capsule-mutating-webhook-configuration", validatingWebhookConfigurationName: "capsule-validating-webhook-configuration"}
	Overrides Overrides `json:"overrides,omitempty,omitzero"`
	// rbac are the names of cluster roles.
	// +optional
	// +kubebuilder:default={}
	RBAC RBAC `json:"rbac,omitempty,omitzero"`
	// enableTLSReconciler lets Capsule issue its own certificates.
	// +optional
	// +kubebuilder:default=false
	EnableTLSReconciler bool `json:"enableTLSReconciler"`
	// cacheInvalidation is the interval at which Capsule clears its caches.
	// +optional
	// +kubebuilder:default="24h"
	CacheInvalidation string `json:"cacheInvalidation,omitempty"`
	// impersonation configures the accounts that Capsule impersonates to replicate objects.
	// +optional
	Impersonation *Impersonation `json:"impersonation,omitempty"`
	// admission configures Capsule's webhooks.
	// +optional
	Admission *Unknown `json:"admission,omitempty"`
	// events configures the events that Capsule writes.
	// +optional
	// +kubebuilder:default={namespace: "default"}
	Events Events `json:"events,omitempty,omitzero"`
}

// NodeMetadata are the labels and annotations of nodes that owners may not write.
type NodeMetadata struct {
	// forbiddenLabels are labels that owners must not give.
	// +optional
	ForbiddenLabels *ForbiddenList `json:"forbiddenLabels,omitempty"`
	// forbiddenAnnotations are annotations that owners must not give.
	// +optional
	ForbiddenAnnotations *ForbiddenList `json:"forbiddenAnnotations,omitempty"`
}

// Overrides are names of Capsule's own objects.
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
	// administrationClusterRoles are the roles of administrators.
	// +optional
	// +kubebuilder:default={capsule-namespace-deleter}
	AdministrationClusterRoles []string `json:"administrationClusterRoles,omitempty"`
	// promotionClusterRoles are the roles of promoted service accounts.
	// +optional
	// +kubebuilder:default={capsule-namespace-provisioner,capsule-namespace-deleter}
	PromotionClusterRoles []string `json:"promotionClusterRoles,omitempty"`
	// deleter is the role to delete namespaces.
	// +optional
	// +kubebuilder:default=capsule-namespace-deleter
	Deleter string `json:"deleter,omitempty"`
	// provisioner is the role to create namespaces.
	// +optional
	// +kubebuilder:default=capsule-namespace-provisioner
	Provisioner string `json:"provisioner,omitempty"`
}

// Impersonation configures the accounts that Capsule impersonates to replicate objects.
type Impersonation struct {
	// endpoint is the API server's address.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// caSecretName is the name of the Secret with the API server's certificate authority.
	// +optional
	CASecretName string `json:"caSecretName,omitempty"`
	// caSecretNamespace is the namespace of this Secret.
	// +optional
	CASecretNamespace string `json:"caSecretNamespace,omitempty"`
	// caSecretKey is the key in this Secret.
	// +optional
	// +kubebuilder:default=ca.crt
	CASecretKey string `json:"caSecretKey,omitempty"`
	// skipTlsVerify disables the verification of the API server's certificate.
	// +optional
	// +kubebuilder:default=false
	SkipTLSVerify bool `json:"skipTlsVerify,omitempty"`
	// globalDefaultServiceAccount is the account for GlobalTenantResources that name no
	// account.
	// +optional
	GlobalDefaultServiceAccount string `json:"globalDefaultServiceAccount,omitempty"`
	// globalDefaultServiceAccountNamespace is the namespace of this account.
	// +optional
	GlobalDefaultServiceAccountNamespace string `json:"globalDefaultServiceAccountNamespace,omitempty"`
	// tenantDefaultServiceAccount is the account for TenantResources that name no account.
	// +optional
	TenantDefaultServiceAccount string `json:"tenantDefaultServiceAccount,omitempty"`
}

// Events configures the events that Capsule writes.
type Events struct {
	// namespace is the namespace of events about cluster-scoped objects.
	// +optional
	// +kubebuilder:default=default
	Namespace string `json:"namespace,omitempty"`
}

// CapsuleConfigurationStatus is the observed state of a CapsuleConfiguration.
type CapsuleConfigurationStatus struct {
	// observedGeneration is the generation that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// tenants are the names of all of Capsule's Tenants.
	// +optional
	Tenants []string `json:"tenants,omitempty"`
	// users are the users and groups of the spec, and the TenantOwners with aggregate. An
	// entry gives no rights: Tenants name or select their owners.
	// +optional
	Users []Identity `json:"users,omitempty"`
	// conditions: Ready is True if the spec is in force; Honoured, if every field of the
	// spec is in force.
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

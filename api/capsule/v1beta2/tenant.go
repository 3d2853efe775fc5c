package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Tenant is a team in Capsule's API. Tenure translates it into a Tenant of its own API, with
// the same name.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=tnt
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Namespace quota",type=integer,JSONPath=`.spec.namespaceOptions.quota`
// +kubebuilder:printcolumn:name="Namespace count",type=integer,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Node selector",type=string,JSONPath=`.spec.nodeSelector`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the tenant's owners, namespaces and limits.
	// +optional
	Spec TenantSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status TenantStatus `json:"status,omitempty,omitzero"`
}

// TenantSpec defines a tenant's owners, namespaces and limits.
type TenantSpec struct {
	// owners may create namespaces, and have their roles in each of them.
	// +optional
	Owners []Owner `json:"owners,omitempty"`
	// permissions add further owners.
	// +optional
	Permissions *Permissions `json:"permissions,omitempty"`
	// additionalRoleBindings give other users roles in all of the tenant's namespaces.
	// +optional
	AdditionalRoleBindings []AdditionalRoleBinding `json:"additionalRoleBindings,omitempty"`
	// namespaceOptions limit the number of namespaces, and define their metadata.
	// +optional
	NamespaceOptions *NamespaceOptions `json:"namespaceOptions,omitempty"`
	// forceTenantPrefix makes the names of the owners' namespaces begin with the
	// tenant's name and a hyphen. Without it the CapsuleConfiguration decides.
	// +optional
	ForceTenantPrefix *bool `json:"forceTenantPrefix,omitempty"`
	// cordoned stops the tenant from making changes.
	// +optional
	// +kubebuilder:default=false
	Cordoned bool `json:"cordoned,omitempty"`
	// preventDeletion prevents the deletion of the Tenant.
	// +optional
	// +kubebuilder:default=false
	PreventDeletion bool `json:"preventDeletion,omitempty"`

	// resourceQuotas limit the resources that the tenant uses.
	// +optional
	ResourceQuotas *ResourceQuotas `json:"resourceQuotas,omitempty"`
	// limitRanges are created in each namespace.
	// +optional
	LimitRanges *LimitRanges `json:"limitRanges,omitempty"`
	// networkPolicies are created in each namespace.
	// +optional
	NetworkPolicies *NetworkPolicies `json:"networkPolicies,omitempty"`

	// containerRegistries are the allowed registries of images.
	// +optional
	ContainerRegistries *AllowedList `json:"containerRegistries,omitempty"`
	// imagePullPolicies are the allowed pull policies of Pods.
	// +optional
	ImagePullPolicies []ImagePullPolicy `json:"imagePullPolicies,omitempty"`
	// ingressOptions limit Ingresses.
	// +optional
	IngressOptions *IngressOptions `json:"ingressOptions,omitempty"`
	// gatewayOptions limit Gateways.
	// +optional
	GatewayOptions *GatewayOptions `json:"gatewayOptions,omitempty"`
	// serviceOptions limit Services.
	// +optional
	ServiceOptions *ServiceOptions `json:"serviceOptions,omitempty"`
	// podOptions add labels and annotations to Pods.
	// +optional
	PodOptions *PodOptions `json:"podOptions,omitempty"`
	// storageClasses are the classes that claims may name.
	// +optional
	StorageClasses *DefaultAllowedList `json:"storageClasses,omitempty"`
	// priorityClasses are the classes that Pods may name.
	// +optional
	PriorityClasses *DefaultAllowedList `json:"priorityClasses,omitempty"`
	// runtimeClasses are the classes that Pods may name.
	// +optional
	RuntimeClasses *DefaultAllowedList `json:"runtimeClasses,omitempty"`
	// deviceClasses are the classes that resource claims may name.
	// +optional
	DeviceClasses *SelectorAllowedList `json:"deviceClasses,omitempty"`
	// nodeSelector selects the nodes on which the tenant's Pods run.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// data is for templates, and any object.
	// +optional
	Data *Unknown `json:"data,omitempty"`

	// rules are newer than what Tenure understands of Capsule's API. They are kept
	// so that they can be refused.
	// +optional
	Rules []Unknown `json:"rules,omitempty"`
}

// Unknown is an object of any content, which is stored without changes.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Unknown struct {
	runtime.RawExtension `json:",inline"`
}

// Owner is a user, group or service account that owns a tenant.
type Owner struct {
	Identity `json:",inline"`
	// clusterRoles are the roles that the owner has in each of the tenant's namespaces.
	// +optional
	// +kubebuilder:default={admin,capsule-namespace-deleter}
	ClusterRoles []string `json:"clusterRoles,omitempty"`
	// labels are labels of the owner's RoleBindings.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are annotations of the owner's RoleBindings.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// proxySettings are the objects that the owner may read through the proxy.
	// +optional
	ProxySettings []OwnerProxySetting `json:"proxySettings,omitempty"`
}

// Identity names a User, a Group or a ServiceAccount.
type Identity struct {
	// kind is User, Group or ServiceAccount. It may be left out for a name that
	// begins with system:serviceaccount:.
	// +optional
	// +kubebuilder:validation:Enum=User;Group;ServiceAccount
	Kind string `json:"kind,omitempty"`
	// name is the exact name. The name of a ServiceAccount is
	// system:serviceaccount:NAMESPACE:NAME.
	// +required
	Name string `json:"name"`
}

// OwnerProxySetting lets an owner read cluster-scoped objects through the proxy.
type OwnerProxySetting struct {
	// kind is the kind of the objects.
	// +required
	// +kubebuilder:validation:Enum=Nodes;StorageClasses;IngressClasses;PriorityClasses;RuntimeClasses;PersistentVolumes
	Kind string `json:"kind"`
	// operations are the allowed operations.
	// +required
	Operations []ProxyOperation `json:"operations"`
}

// ProxyOperation is an operation of an owner through the proxy.
//
// +kubebuilder:validation:Enum=List;Update;Delete
type ProxyOperation string

// Permissions add further owners.
type Permissions struct {
	// allowOwnerPromotion lets owners make service accounts of the tenant's
	// namespaces owners too, by a label.
	// +optional
	// +kubebuilder:default=true
	AllowOwnerPromotion *bool `json:"allowOwnerPromotion,omitempty"`
	// matchOwners select TenantOwners.
	// +optional
	MatchOwners []metav1.LabelSelector `json:"matchOwners,omitempty"`
}

// AdditionalRoleBinding gives other users a role in all of a tenant's namespaces.
type AdditionalRoleBinding struct {
	// clusterRoleName is the name of the ClusterRole.
	// +required
	ClusterRoleName string `json:"clusterRoleName"`
	// subjects are the users, groups and service accounts that get the role.
	// +required
	Subjects []rbacv1.Subject `json:"subjects"`
	// labels are labels of the RoleBindings.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are annotations of the RoleBindings.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ResourceQuotas limit the resources that a tenant uses.
type ResourceQuotas struct {
	// scope is Tenant if the limits apply to all namespaces together, and Namespace if they
	// apply to each namespace.
	// +optional
	// +kubebuilder:default=Tenant
	// +kubebuilder:validation:Enum=Tenant;Namespace
	Scope string `json:"scope,omitempty"`
	// items are the limits.
	// +optional
	Items []corev1.ResourceQuotaSpec `json:"items,omitempty"`
}

// LimitRanges are created in each of a tenant's namespaces.
type LimitRanges struct {
	// items are one LimitRange each.
	// +optional
	Items []corev1.LimitRangeSpec `json:"items,omitempty"`
}

// NetworkPolicies are created in each of a tenant's namespaces.
type NetworkPolicies struct {
	// items are one NetworkPolicy each.
	// +optional
	Items []networkingv1.NetworkPolicySpec `json:"items,omitempty"`
}

// TenantStatus is the observed state of a Tenant.
type TenantStatus struct {
	// state is Active, Cordoned or Terminating.
	// +required
	// +kubebuilder:default=Active
	// +kubebuilder:validation:Enum=Cordoned;Active;Terminating
	State string `json:"state"`
	// size is the number of namespaces.
	// +required
	Size int32 `json:"size"`
	// namespaces are the names of the tenant's namespaces.
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// spaces are the tenant's namespaces, each with its conditions.
	// +optional
	// +listType=map
	// +listMapKey=name
	Spaces []TenantSpace `json:"spaces,omitempty"`
	// classes are the classes that exist and that the tenant may use.
	// +optional
	Classes TenantClasses `json:"classes,omitempty,omitzero"`
	// owners are the tenant's owners after the translation.
	// +optional
	Owners []StatusOwner `json:"owners,omitempty"`
	// promotions are the service accounts to which the promotions in spec.rules give roles, with
	// the namespaces in which they have them.
	// +optional
	Promotions []Promotion `json:"promotions,omitempty"`
	// observedGeneration is the generation that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready is True if the spec is in force; Cordoned, if the tenant may not
	// make changes; Honoured, if every field of the spec is in force.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantSpace is a namespace of a tenant.
type TenantSpace struct {
	// name is the name of the namespace.
	// +required
	Name string `json:"name"`
	// uid is the UID of the namespace.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// conditions: Ready reports whether the Tenant is in force in the namespace; Cordoned,
	// whether the tenant may make changes in it.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// metadata are the labels and annotations that the Tenant gives the namespace.
	// +optional
	Metadata *Metadata `json:"metadata,omitempty"`
}

// TenantClasses are names of classes, by kind.
type TenantClasses struct {
	// storage are StorageClasses.
	// +optional
	// +listType=set
	Storage []string `json:"storage,omitempty"`
	// priority are PriorityClasses.
	// +optional
	// +listType=set
	Priority []string `json:"priority,omitempty"`
	// runtime are RuntimeClasses.
	// +optional
	// +listType=set
	Runtime []string `json:"runtime,omitempty"`
	// gateway are GatewayClasses.
	// +optional
	// +listType=set
	Gateway []string `json:"gateway,omitempty"`
	// device are DeviceClasses.
	// +optional
	// +listType=set
	Device []string `json:"device,omitempty"`
}

// StatusOwner is an owner with the roles that it has.
type StatusOwner struct {
	Identity `json:",inline"`
	// clusterRoles are the owner's roles.
	// +optional
	// +kubebuilder:default={admin,capsule-namespace-deleter}
	ClusterRoles []string `json:"clusterRoles,omitempty"`
}

// Promotion is a service account that has roles in namespaces by a rule of spec.rules.
type Promotion struct {
	StatusOwner `json:",inline"`
	// targets are namespaces.
	// +optional
	Targets []string `json:"targets,omitempty"`
}

// TenantList is a list of Tenants.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tenant `json:"items"`
}

// States of a Tenant.
const (
	StateActive      = "Active"
	StateCordoned    = "Cordoned"
	StateTerminating = "Terminating"
)

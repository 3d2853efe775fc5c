package v1beta1

import (
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "capsule.clastix.io", Version: "v1beta1"}

// AddToScheme adds the kinds that are stored in this version to a scheme. Its error is
// always nil.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ProxySetting{}, &ProxySettingList{},
		&GlobalProxySettings{}, &GlobalProxySettingsList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// ProxySetting lets users of a tenant read cluster-scoped objects through the proxy. It is
// in one of the tenant's namespaces. Its subjects can read no more than every owner of the
// tenant can read.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Honoured",type=string,JSONPath=`.status.conditions[?(@.type=="Honoured")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ProxySetting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects the objects, and the users that may read them.
	// +optional
	Spec ProxySettingSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ProxySettingStatus `json:"status,omitempty,omitzero"`
}

// ProxySettingSpec selects the objects, and the users that may read them.
type ProxySettingSpec struct {
	// subjects are users, each with the objects that the user may read.
	// +required
	// +kubebuilder:validation:MaxItems=100
	Subjects []ProxySubject `json:"subjects"`
}

// ProxySubject is a user, group or service account, and the objects that it may read.
type ProxySubject struct {
	ProxyIdentity `json:",inline"`
	// proxySettings select objects of well-known kinds.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	ProxySettings []v1beta2.OwnerProxySetting `json:"proxySettings,omitempty"`
	// clusterResources select objects of any cluster-scoped kinds.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	ClusterResources []ClusterResource `json:"clusterResources,omitempty"`
}

// ProxyIdentity names a User, a Group or a ServiceAccount.
type ProxyIdentity struct {
	// kind is User, Group or ServiceAccount.
	// +required
	// +kubebuilder:validation:Enum=User;Group;ServiceAccount
	Kind string `json:"kind"`
	// name is the exact name. The name of a ServiceAccount is
	// system:serviceaccount:NAMESPACE:NAME.
	// +required
	Name string `json:"name"`
}

// ClusterResource selects objects of cluster-scoped kinds.
type ClusterResource struct {
	// apiGroups of the kinds.
	// +required
	// +kubebuilder:validation:MaxItems=16
	APIGroups []string `json:"apiGroups"`
	// resources are the plural names of the kinds.
	// +required
	// +kubebuilder:validation:MaxItems=16
	Resources []string `json:"resources"`
	// operations are the allowed operations.
	// +optional
	// +kubebuilder:default={List,Get}
	Operations []ClusterResourceOperation `json:"operations,omitempty"`
	// selector selects objects by their labels.
	// +required
	Selector *metav1.LabelSelector `json:"selector"`
}

// ClusterResourceOperation is an operation on a cluster-scoped object.
//
// +kubebuilder:validation:Enum=List;Get
type ClusterResourceOperation string

// ProxySettingStatus is the observed state of a ProxySetting or GlobalProxySettings.
type ProxySettingStatus struct {
	// observedGeneration is the generation that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Honoured is True if every field has its effect.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProxySettingList is a list of ProxySettings.
//
// +kubebuilder:object:root=true
type ProxySettingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProxySetting `json:"items"`
}

// GlobalProxySettings let any user, of a tenant or not, read cluster-scoped objects through
// the proxy. A platform admin writes them.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,path=globalproxysettings
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Honoured",type=string,JSONPath=`.status.conditions[?(@.type=="Honoured")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GlobalProxySettings struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects the objects, and the users that may read them.
	// +optional
	Spec GlobalProxySettingsSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status ProxySettingStatus `json:"status,omitempty,omitzero"`
}

// GlobalProxySettingsSpec selects the objects, and the users that may read them.
type GlobalProxySettingsSpec struct {
	// rules are users, each with the objects that they may read.
	// +required
	// +kubebuilder:validation:MaxItems=100
	Rules []GlobalSubjects `json:"rules"`
}

// GlobalSubjects are users, groups and service accounts, and the objects that they may read.
type GlobalSubjects struct {
	// subjects are the users, groups and service accounts that may read the objects.
	// +required
	// +kubebuilder:validation:MaxItems=1000
	Subjects []ProxyIdentity `json:"subjects"`
	// clusterResources select the objects.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	ClusterResources []ClusterResource `json:"clusterResources,omitempty"`
}

// GlobalProxySettingsList is a list of GlobalProxySettings.
//
// +kubebuilder:object:root=true
type GlobalProxySettingsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GlobalProxySettings `json:"items"`
}

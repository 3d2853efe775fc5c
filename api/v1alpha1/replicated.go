package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ReplicatedObjects are objects that all, or some, of a tenant's namespaces have. The manager
// applies them as a service account of the target namespace, and so cannot create more than
// this account may create.
//
// +kubebuilder:validation:XValidation:rule="has(self.items) && size(self.items) > 0 || has(self.from) && size(self.from) > 0",message="give items, or in from objects that exist"
type ReplicatedObjects struct {
	// name identifies the list.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// namespaceSelector selects, by labels, the tenant's namespaces that get the objects.
	// The default is all of them.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// items are the objects, with a name and without a namespace. Cluster-scoped kinds and
	// the kinds of Tenure and Capsule are refused.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Items []ReplicatedItem `json:"items,omitempty"`
	// from selects existing objects. Each namespace gets copies of them. The manager reads
	// them as the account that applies them, which needs a RoleBinding to read objects in a
	// namespace of the platform.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	From []ReplicatedFrom `json:"from,omitempty"`
	// serviceAccount is the name of the account that applies the objects, in each
	// namespace that gets them. The default is the tenant's name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// adopt adds the fields of an item to an existing object with the same name that
	// another client created. Such objects are not deleted with the list.
	// +optional
	Adopt bool `json:"adopt,omitempty"`
	// force takes over fields that another field manager has set.
	// +optional
	Force bool `json:"force,omitempty"`
}

// ReplicatedItem is a complete object.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XEmbeddedResource
type ReplicatedItem struct {
	runtime.RawExtension `json:",inline"`
}

// ReplicatedFrom selects existing objects.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.selector)",message="give either a name or a selector"
type ReplicatedFrom struct {
	// apiVersion is the API version of the objects, such as v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion"`
	// kind is the kind of the objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace is the namespace of the objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name is the name of a single object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// selector selects several objects, at most 64, by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ReplicatedObject is a replicated object, with the namespaces that have it.
type ReplicatedObject struct {
	// apiVersion is the object's API version.
	// +required
	APIVersion string `json:"apiVersion"`
	// kind is the object's kind.
	// +required
	Kind string `json:"kind"`
	// name is the object's name.
	// +required
	Name string `json:"name"`
	// serviceAccount is the name of the account, in the namespace, that applied the object
	// and will delete it.
	// +required
	ServiceAccount string `json:"serviceAccount"`
	// namespaces are the namespaces that have the object.
	// +required
	// +listType=set
	Namespaces []string `json:"namespaces"`
}

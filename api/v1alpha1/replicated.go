package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ReplicatedObjects are objects that all, or some, of a tenant's namespaces have.
// They are applied as a service account of the namespace they come into, so
// they are never more than that account may make.
//
// +kubebuilder:validation:XValidation:rule="has(self.items) && size(self.items) > 0 || has(self.from) && size(self.from) > 0",message="give items, or in from objects that exist"
type ReplicatedObjects struct {
	// name tells the lists apart.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// namespaceSelector says which of the tenant's namespaces get the objects, by
	// their labels; without it, all do.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// items are the objects, with a name and without a namespace. Cluster-scoped kinds and
	// the kinds of Tenure and Capsule are refused.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Items []ReplicatedItem `json:"items,omitempty"`
	// from names objects that exist, of which each namespace gets a copy. They are
	// read as the account that applies: in a namespace of the platform it needs a
	// RoleBinding.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	From []ReplicatedFrom `json:"from,omitempty"`
	// serviceAccount is the name of the account, in each namespace that gets the
	// objects, that applies them there. Without it, that is the one with the
	// tenant's name.
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

// ReplicatedFrom names objects that exist.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.selector)",message="give either a name or a selector"
type ReplicatedFrom struct {
	// apiVersion is the objects', such as v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion"`
	// kind is the objects'.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace is where they are.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name is the name of a single object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// selector chooses several by their labels, 64 at most.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
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
	// serviceAccount is the name of the account, in the namespace, that applied it
	// and removes it.
	// +required
	ServiceAccount string `json:"serviceAccount"`
	// namespaces have it.
	// +required
	// +listType=set
	Namespaces []string `json:"namespaces"`
}

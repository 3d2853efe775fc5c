package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LabelClaimNamespace is a label of PersistentVolumes. Its value is the namespace of the
// bound claim. The proxy shows a tenant the volumes whose label names a namespace of the
// tenant. Policy tenure-volumes keeps the label on each write, by any user.
const LabelClaimNamespace = "tenure.dev/claim-namespace"

// ClusterResource selects objects of cluster-scoped kinds that subjects may read through
// the proxy. RBAC cannot grant rights by label, so the proxy reads these objects with its
// own rights, which the platform gives it: see docs/how-to/proxy.md. The proxy never writes
// them. Use spec.clusterRoles to give a right to write.
//
// A ClusterResource selects only those PersistentVolumes that are bound to claims in the
// tenant's namespaces.
type ClusterResource struct {
	// apiGroups are the exact API groups of the kinds; "" is the core group.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.exists(g, g == '*')",message="name the API groups: * would also show kinds that are installed later"
	// +kubebuilder:validation:XValidation:rule="!self.exists(g, g == 'rbac.authorization.k8s.io')",message="who has which rights is not shown"
	APIGroups []string `json:"apiGroups"`
	// resources are the plural names of cluster-scoped kinds, such as nodes. Namespaces and
	// Tenants are not allowed: the proxy shows them to their owners without a grant.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.exists(r, r == 'namespaces')",message="namespaces are shown to those whose they are"
	Resources []string `json:"resources"`
	// verbs are the allowed verbs.
	// +optional
	// +listType=set
	// +kubebuilder:default={get,list,watch}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Enum=get;list;watch
	Verbs []string `json:"verbs,omitempty"`
	// selector selects objects by their labels; an empty selector selects all objects. If
	// several selectors for one kind apply to one user, the proxy must be able to combine
	// them into one selector, such as pool=a and pool=b; otherwise it refuses a list.
	// +required
	Selector metav1.LabelSelector `json:"selector"`
	// subjects are the users, groups and service accounts that may read the objects. The
	// default is the tenant's owners and, in each of its namespaces, the service account
	// with the tenant's name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Subjects []Subject `json:"subjects,omitempty"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LabelClaimNamespace of a PersistentVolume names the namespace of the claim that it
// is bound to. Of volumes the proxy shows a tenant those that have this label with a
// namespace of the tenant's. Policy tenure-volumes keeps the label, whoever writes.
const LabelClaimNamespace = "tenure.dev/claim-namespace"

// ClusterResource are objects of cluster-scoped kinds that somebody may read through
// the proxy. RBAC gives nothing of it: it cannot grant by labels. The proxy reads
// them as itself, for which it needs the right to read the kinds: see
// docs/how-to/proxy.md. It never writes; a right to write is given with
// spec.clusterRoles.
//
// Of PersistentVolumes only those that are bound to claims in the tenant's namespaces
// are meant.
type ClusterResource struct {
	// apiGroups of the kinds, exactly; "" is the core group.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.exists(g, g == '*')",message="name the API groups: with * what is installed tomorrow would be shown, too"
	// +kubebuilder:validation:XValidation:rule="!self.exists(g, g == 'rbac.authorization.k8s.io')",message="who has which rights is not shown"
	APIGroups []string `json:"apiGroups"`
	// resources are the plural names of the kinds, such as nodes. What is in a
	// namespace is not shown, nor are namespaces and Tenants, which the proxy shows
	// to those whose they are.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.exists(r, r == 'namespaces')",message="namespaces are shown to those whose they are"
	Resources []string `json:"resources"`
	// verbs are what may be done.
	// +optional
	// +listType=set
	// +kubebuilder:default={get,list,watch}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Enum=get;list;watch
	Verbs []string `json:"verbs,omitempty"`
	// selector says which objects, by their labels; an empty one is all of them.
	// Several for one kind and one person have to be one selector together, such as
	// pool=a and pool=b, or a list is refused.
	// +required
	Selector metav1.LabelSelector `json:"selector"`
	// subjects are who may read. Without them, the tenant's owners and its accounts
	// may: in each of its namespaces, the one with the tenant's name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Subjects []Subject `json:"subjects,omitempty"`
}

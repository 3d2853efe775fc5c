package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantParameters holds the limits of the tenant that owns a namespace. The manager
// generates it, with the name tenure, from the TenancyProfile and the Tenant. Only the
// manager may write it.
//
// +kubebuilder:object:root=true
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.tenant`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'tenure'",message="a namespace has one TenantParameters, and its name is tenure"
type TenantParameters struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec has the limits that are in force in the namespace.
	// +required
	Spec TenantParametersSpec `json:"spec"`
}

// TenantParametersSpec has the limits that are in force in a namespace: the limits of the
// TenancyProfile, in which the Tenant has replaced parts.
type TenantParametersSpec struct {
	// tenant is the name of the tenant.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Tenant string `json:"tenant"`

	// cordoned allows only the platform to make changes in the namespace.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`

	// ownerAccounts are the service accounts in this namespace that own a tenant, this
	// one or another. No Pod may run as one of them.
	// +optional
	// +listType=set
	OwnerAccounts []string `json:"ownerAccounts,omitempty"`

	// platformWorkloads are the workloads in this namespace that syncs of the platform
	// applied, as KIND/NAME: Deployments, StatefulSets, DaemonSets, CronJobs and Jobs with what
	// Kubernetes makes of them, and HorizontalPodAutoscalers. The tenant must not scale, evict or
	// enter them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	PlatformWorkloads []string `json:"platformWorkloads,omitempty"`

	// platformSelectors are the selectors by which the workloads in platformWorkloads take Pods,
	// ReplicaSets and ControllerRevisions for their own. The tenant must not create objects with
	// such labels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	PlatformSelectors []metav1.LabelSelector `json:"platformSelectors,omitempty"`

	// keySecrets are the names of the Secrets with the platform's public keys that the
	// manager keeps in this namespace.
	// +optional
	// +listType=set
	KeySecrets []string `json:"keySecrets,omitempty"`

	// selectedClasses are the classes that the selectors of spec.tenants select now. It is
	// unset if there are no selectors.
	// +optional
	SelectedClasses *SelectedClasses `json:"selectedClasses,omitempty"`

	// defaultClasses are the classes that new objects in this namespace get if they name
	// none. It is unset if there is no default.
	// +optional
	DefaultClasses *DefaultClasses `json:"defaultClasses,omitempty"`

	// The profile's fields about accounts and modes apply here as well.
	TenancyProfileSpec `json:",inline"`
}

// TenantParametersList is a list of TenantParameters.
//
// +kubebuilder:object:root=true
type TenantParametersList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantParameters `json:"items"`
}

package v1beta1

import (
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tenant is a team as Capsule describes it. In v1beta1, annotations of capsule.clastix.io had the
// meaning of some fields of v1beta2; Tenure reads these annotations too.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=tnt
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Namespace quota",type=integer,JSONPath=`.spec.namespaceOptions.quota`
// +kubebuilder:printcolumn:name="Namespace count",type=integer,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Node selector",type=string,JSONPath=`.spec.nodeSelector`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the tenant, with its rights and limits.
	// +optional
	Spec v1beta2.TenantSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status v1beta2.TenantStatus `json:"status,omitempty,omitzero"`
}

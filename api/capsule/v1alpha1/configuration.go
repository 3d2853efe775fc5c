package v1alpha1

import (
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapsuleConfiguration configures Capsule for all tenants. Tenure reads only the object named
// default.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
type CapsuleConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the configuration for all tenants.
	// +optional
	Spec v1beta2.CapsuleConfigurationSpec `json:"spec,omitempty,omitzero"`
	// status is the observed state.
	// +optional
	Status v1beta2.CapsuleConfigurationStatus `json:"status,omitempty,omitzero"`
}

// Package v1alpha1 is an older version of the API of Capsule: the
// CapsuleConfiguration of older fleets. It is served and not stored, and has the
// schema of v1beta2, of which its fields are a part.
//
// +kubebuilder:object:generate=true
// +groupName=capsule.clastix.io
package v1alpha1

// Package v1beta2 is the stored version of the API of Capsule
// (capsule.clastix.io), as far as Tenure understands it: field names, types and
// defaults are those of Capsule v0.14, so that manifests written for Capsule are
// accepted as they are. What becomes of each field is in docs/reference/capsule.md,
// and is decided by internal/capsule.
//
// Two things are wider than Capsule's own schema: spec.owners[].kind may be left
// out, as the Capsule document does for service accounts, and spec.rules of a
// Tenant is kept whatever is in it, so that it can be refused instead of lost.
//
// +kubebuilder:object:generate=true
// +groupName=capsule.clastix.io
package v1beta2

//go:generate go tool -modfile=../../../hack/apigen/go.mod controller-gen object crd paths=../... output:crd:dir=../../../config/capsule/crd
//go:generate go run ../../../hack/crdbounds ../../../config/capsule/crd/capsule.clastix.io_tenants.yaml

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "capsule.clastix.io", Version: "v1beta2"}

// AddToScheme adds the types in this package to a scheme. Its error is always nil.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Tenant{}, &TenantList{},
		&CapsuleConfiguration{}, &CapsuleConfigurationList{},
		&TenantOwner{}, &TenantOwnerList{},
		&RuleStatus{}, &RuleStatusList{},
		&TenantResource{}, &TenantResourceList{},
		&GlobalTenantResource{}, &GlobalTenantResourceList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

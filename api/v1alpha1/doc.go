// Package v1alpha1 is the API of tenure.dev: what tenants of a cluster with Flux
// may do. It imports Kubernetes' API types alone, so that anybody can use the
// types.
//
// +kubebuilder:object:generate=true
// +groupName=tenure.dev
package v1alpha1

//go:generate go tool -modfile=../../hack/apigen/go.mod controller-gen object crd paths=. output:crd:dir=../../config/crd
//go:generate go run ../../hack/crdbounds ../../config/crd/tenure.dev_tenants.yaml ../../config/crd/tenure.dev_tenantparameters.yaml

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "tenure.dev", Version: "v1alpha1"}

// AddToScheme adds the types in this package to a scheme. Its error is always nil.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&TenancyProfile{}, &TenancyProfileList{},
		&SourceGrant{}, &SourceGrantList{},
		&Tenant{}, &TenantList{},
		&TenantParameters{}, &TenantParametersList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Labels that assign a namespace to a tenant. Their values name the tenant. Only a platform admin
// may set, change or remove them.
const (
	// LabelTenant is the label of Tenure.
	LabelTenant = "tenure.dev/tenant"
	// LabelFluxTenant is the label that `flux create tenant` writes.
	LabelFluxTenant = "toolkit.fluxcd.io/tenant"
	// LabelCapsuleTenant is the label that Capsule writes.
	LabelCapsuleTenant = "capsule.clastix.io/tenant"
)

// LabelCapsuleCordoned is the label that, with the value true, cordons a single namespace of a tenant, as
// spec.cordoned of a Tenant cordons all of them. The platform sets it, and owners with [VerbCordon] do.
// Capsule's command line writes this label.
const LabelCapsuleCordoned = "projectcapsule.dev/cordoned"

// LabelParameters is set on a tenant's namespace, to any value, when its TenantParameters exist:
// from then on the policies read them instead of the profile. With the value
// [ParametersWithoutDefaults], objects in the namespace get no defaults, and the API server leaves out
// the policy that sets them.
const (
	LabelParameters           = "tenure.dev/parameters"
	ParametersWithoutDefaults = "without-defaults"
)

// LabelMadeBy marks a namespace that an owner of a Tenant created, with the value
// [MadeByOwner]. Tenure's webhook sets it. The platform applies nothing to such a
// namespace, and selectors consider only the labels that the platform or the Tenant set.
// A platform admin adopts the namespace by changing the value or removing the label.
const (
	LabelMadeBy = "tenure.dev/made-by"
	MadeByOwner = "owner"
)

// LabelShard is Flux's label for a shard. On a namespace of a tenant, it names the shard whose
// controllers reconcile the Flux objects in the namespace. Only a platform admin may set, change or
// remove it there.
const LabelShard = "sharding.fluxcd.io/key"

// The label and the annotation of a namespace of the platform whose images are pinned.
const (
	// LabelImages, with any value, marks a namespace in which Pods may use only the
	// images in the TenancyProfile's platformImages and in the annotation.
	LabelImages = "tenure.dev/images"
	// AnnotationImages lists images in the format of platformImages, one per line. It is on the
	// namespace, so that Flux applies it together with the workloads of the namespace, and before
	// them.
	AnnotationImages = "tenure.dev/images"
)

// The names that the API server's policies look for.
const (
	// ProfileName is the name of the only TenancyProfile that Tenure reads.
	ProfileName = "default"
	// ParametersName is the name of the TenantParameters of a namespace.
	ParametersName = "tenure"
)

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The rule of Quantities reads a text by its first character alone: before Kubernetes 1.34 an API server
// ignores the maximum length of an amount, and refuses a rule that reads all of it.

// Quantities are amounts of resources by name, as in a ResourceQuota: 0 or more.
//
// +kubebuilder:validation:MaxProperties=64
// +kubebuilder:validation:XValidation:rule="self.all(r, type(self[r]) == int ? self[r] >= 0 : self[r] < '-' || self[r] >= '.')",message="an amount is 0 or more: a negative amount would allow nothing, so write 0"
type Quantities map[corev1.ResourceName]resource.Quantity

// TenantQuota limits what a tenant may use.
//
// +kubebuilder:validation:XValidation:rule="has(self.hard) && size(self.hard) > 0",message="a quota without a bound bounds nothing: give hard, such as pods: 10",fieldPath=".hard"
type TenantQuota struct {
	// name identifies the quota within the tenant.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// namespaceSelector selects, by their labels, the tenant's namespaces that the quota
	// applies to; without it, the quota applies to all of them. If owners may choose a label
	// that it reads, they decide which of their namespaces the quota bounds. Objects that
	// exist in a namespace count from when the quota applies to the namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// scope is Tenant if the limits apply to all of these namespaces together, and
	// Namespace if they apply to each of them. The total of the namespaces never
	// exceeds the limits of a Tenant quota, even while namespaces are created and
	// deleted.
	// +optional
	// +kubebuilder:default=Tenant
	// +kubebuilder:validation:Enum=Tenant;Namespace
	Scope string `json:"scope,omitempty"`
	// hard are the limits, as in a ResourceQuota. The manager divides the limits of scope
	// Tenant among the tenant's namespaces: each namespace gets what it uses, and an
	// equal part of the rest.
	// +optional
	Hard Quantities `json:"hard,omitempty"`
	// scopes select the objects that the quota counts, as in a ResourceQuota: objects
	// that match all of the scopes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Scopes []corev1.ResourceQuotaScope `json:"scopes,omitempty"`
	// scopeSelector selects the objects that the quota counts, as in a ResourceQuota.
	// +optional
	ScopeSelector *corev1.ScopeSelector `json:"scopeSelector,omitempty"`
}

// ResourceQuotaSpec returns a copy of the limits in the form of a ResourceQuota.
func (q TenantQuota) ResourceQuotaSpec() corev1.ResourceQuotaSpec {
	spec := corev1.ResourceQuotaSpec{Hard: corev1.ResourceList(q.Hard), Scopes: q.Scopes, ScopeSelector: q.ScopeSelector}
	return *spec.DeepCopy()
}

// NewTenantQuota returns a quota with a copy of the limits of a ResourceQuota.
func NewTenantQuota(name, scope string, spec corev1.ResourceQuotaSpec) TenantQuota {
	spec = *spec.DeepCopy()
	return TenantQuota{Name: name, Scope: scope, Hard: Quantities(spec.Hard), Scopes: spec.Scopes, ScopeSelector: spec.ScopeSelector}
}

// LimitRange limits each object in a namespace, as the spec of a Kubernetes LimitRange
// does.
type LimitRange struct {
	// limits by type.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Limits []LimitRangeItem `json:"limits"`
}

// LimitRangeItem limits the objects of one type.
type LimitRangeItem struct {
	// type is the type of object: Pod, Container or PersistentVolumeClaim.
	// +required
	Type corev1.LimitType `json:"type"`
	// max is the maximum of each resource.
	// +optional
	Max Quantities `json:"max,omitempty"`
	// min is the minimum of each resource.
	// +optional
	Min Quantities `json:"min,omitempty"`
	// default is the limit of a container that sets none.
	// +optional
	Default Quantities `json:"default,omitempty"`
	// defaultRequest is the request of a container that sets none.
	// +optional
	DefaultRequest Quantities `json:"defaultRequest,omitempty"`
	// maxLimitRequestRatio is the maximum ratio of a limit to its request.
	// +optional
	MaxLimitRequestRatio Quantities `json:"maxLimitRequestRatio,omitempty"`
}

// LimitRangeSpec returns a copy of the limits in the form of a Kubernetes LimitRange.
func (l LimitRange) LimitRangeSpec() corev1.LimitRangeSpec {
	spec := corev1.LimitRangeSpec{Limits: make([]corev1.LimitRangeItem, 0, len(l.Limits))}
	for _, item := range l.Limits {
		spec.Limits = append(spec.Limits, corev1.LimitRangeItem{
			Type: item.Type, Max: corev1.ResourceList(item.Max), Min: corev1.ResourceList(item.Min),
			Default: corev1.ResourceList(item.Default), DefaultRequest: corev1.ResourceList(item.DefaultRequest),
			MaxLimitRequestRatio: corev1.ResourceList(item.MaxLimitRequestRatio),
		})
	}
	return *spec.DeepCopy()
}

// NewLimitRange returns a copy of the limits of a Kubernetes LimitRange.
func NewLimitRange(spec corev1.LimitRangeSpec) LimitRange {
	l := LimitRange{Limits: make([]LimitRangeItem, 0, len(spec.Limits))}
	for _, item := range spec.DeepCopy().Limits {
		l.Limits = append(l.Limits, LimitRangeItem{
			Type: item.Type, Max: Quantities(item.Max), Min: Quantities(item.Min),
			Default: Quantities(item.Default), DefaultRequest: Quantities(item.DefaultRequest),
			MaxLimitRequestRatio: Quantities(item.MaxLimitRequestRatio),
		})
	}
	return l
}

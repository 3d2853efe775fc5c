package tenancy

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// The API server sets defaults. Desired objects need the same values, or they would always
// differ from the existing objects and be written again and again.

// defaultLimits is SetDefaults_LimitRangeItem of Kubernetes' core/v1.
func defaultLimits(spec *corev1.LimitRangeSpec) {
	for i := range spec.Limits {
		item := &spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		item.Default = filled(item.Default, item.Max)
		item.DefaultRequest = filled(filled(item.DefaultRequest, item.Default), item.Min)
	}
}

// filled returns the list with its missing resources from another list.
func filled(list, from corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	for name, quantity := range from {
		if _, ok := list[name]; !ok {
			list[name] = quantity.DeepCopy()
		}
	}
	return list
}

// defaultNetworkPolicy is SetDefaults_NetworkPolicy and
// SetDefaults_NetworkPolicyPort of Kubernetes' networking/v1.
func defaultNetworkPolicy(spec *networkingv1.NetworkPolicySpec) {
	if len(spec.PolicyTypes) == 0 {
		spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(spec.Egress) > 0 {
			spec.PolicyTypes = append(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	ports := func(ports []networkingv1.NetworkPolicyPort) {
		for i := range ports {
			if ports[i].Protocol == nil {
				ports[i].Protocol = new(corev1.ProtocolTCP)
			}
		}
	}
	for i := range spec.Ingress {
		ports(spec.Ingress[i].Ports)
	}
	for i := range spec.Egress {
		ports(spec.Egress[i].Ports)
	}
}

package tenancy

import (
	"cmp"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// replaced returns a list that a Tenant sets, which may be empty, or the profile's.
func replaced[T any](set, profile []T) []T {
	if set != nil {
		return set
	}
	return profile
}

// firstAllowed returns the first value that is set and allowed, or "". An empty list allows every
// value.
func firstAllowed(list []string, values ...string) string {
	for _, v := range values {
		if v != "" && (len(list) == 0 || slices.Contains(list, v)) {
			return v
		}
	}
	return ""
}

// workloads returns the limits of Pods: the profile's, in which each field that the Tenant
// sets replaces the same field.
func workloads(set, profile v1alpha1.Workloads) v1alpha1.Workloads {
	limits := v1alpha1.Workloads{
		Images:          profile.Images,
		PriorityClasses: classesOf(set.PriorityClasses, profile.PriorityClasses),
		RuntimeClasses:  classesOf(set.RuntimeClasses, profile.RuntimeClasses),
		DeviceClasses:   cmp.Or(set.DeviceClasses, profile.DeviceClasses),
		Schedulers:      replaced(set.Schedulers, profile.Schedulers),
		Tolerations:     replaced(set.Tolerations, profile.Tolerations),
		Nodes:           cmp.Or(set.Nodes, profile.Nodes),
		HostPorts:       replaced(set.HostPorts, profile.HostPorts),
		AutomountTokens: cmp.Or(set.AutomountTokens, profile.AutomountTokens),
		PodAnnotations:  cmp.Or(set.PodAnnotations, profile.PodAnnotations),
		Metadata:        cmp.Or(set.Metadata, profile.Metadata),
	}
	if set.Images != nil {
		given := v1alpha1.Images{}
		if profile.Images != nil {
			given = *profile.Images
		}
		// Both fields limit the registries of images, so the Tenant replaces them together.
		if set.Images.Registries != nil || set.Images.RegistryExpression != "" {
			given.Registries, given.RegistryExpression = set.Images.Registries, set.Images.RegistryExpression
		}
		given.PullPolicies = replaced(set.Images.PullPolicies, given.PullPolicies)
		given.PullPolicy = firstAllowed(given.PullPolicies, set.Images.PullPolicy, given.PullPolicy)
		given.Digests = cmp.Or(set.Images.Digests, given.Digests)
		given.Registry = cmp.Or(set.Images.Registry, given.Registry)
		limits.Images = &given
	}
	return *limits.DeepCopy()
}

// network returns the limits of Services, routes and connections: the profile's, in which each field that
// the Tenant sets replaces the same field.
func network(set, profile v1alpha1.Network) v1alpha1.Network {
	limits := v1alpha1.Network{
		Isolation:          cmp.Or(set.Isolation, profile.Isolation),
		Services:           profile.Services,
		Hosts:              cmp.Or(set.Hosts, profile.Hosts),
		IngressClasses:     classesOf(set.IngressClasses, profile.IngressClasses),
		GatewayClasses:     classesOf(set.GatewayClasses, profile.GatewayClasses),
		Gateways:           cmp.Or(set.Gateways, profile.Gateways),
		IngressAnnotations: cmp.Or(set.IngressAnnotations, profile.IngressAnnotations),
	}
	if set.Services != nil {
		given := v1alpha1.Services{}
		if profile.Services != nil {
			given = *profile.Services
		}
		given.Types = replaced(set.Services.Types, given.Types)
		given.ExternalIPs = replaced(set.Services.ExternalIPs, given.ExternalIPs)
		given.LoadBalancerIPs = replaced(set.Services.LoadBalancerIPs, given.LoadBalancerIPs)
		given.LoadBalancerClasses = cmp.Or(set.Services.LoadBalancerClasses, given.LoadBalancerClasses)
		given.NodePorts = replaced(set.Services.NodePorts, given.NodePorts)
		given.Endpoints = replaced(set.Services.Endpoints, given.Endpoints)
		given.AllowedAnnotations = cmp.Or(set.Services.AllowedAnnotations, given.AllowedAnnotations)
		given.DeniedLabels = replaced(set.Services.DeniedLabels, given.DeniedLabels)
		given.DeniedAnnotations = replaced(set.Services.DeniedAnnotations, given.DeniedAnnotations)
		given.DeniedLabelExpression = cmp.Or(set.Services.DeniedLabelExpression, given.DeniedLabelExpression)
		given.DeniedAnnotationExpression = cmp.Or(set.Services.DeniedAnnotationExpression, given.DeniedAnnotationExpression)
		given.Metadata = cmp.Or(set.Services.Metadata, given.Metadata)
		limits.Services = &given
	}
	return *limits.DeepCopy()
}

// storage returns the limits of volumes: the profile's, in which each field that the Tenant
// sets replaces the same field.
func storage(set, profile v1alpha1.Storage) v1alpha1.Storage {
	limits := v1alpha1.Storage{
		Classes:           classesOf(set.Classes, profile.Classes),
		Volumes:           cmp.Or(set.Volumes, profile.Volumes),
		AttributesClasses: cmp.Or(set.AttributesClasses, profile.AttributesClasses),
		ExistingVolumes:   cmp.Or(set.ExistingVolumes, profile.ExistingVolumes),
		CopyAnnotations:   cmp.Or(set.CopyAnnotations, profile.CopyAnnotations),
	}
	return *limits.DeepCopy()
}

package tenancy

import "github.com/tenure-dev/tenure/api/v1alpha1"

// classesOf returns the classes that a tenant may have: the Tenant's, or the profile's if the
// Tenant sets none or only a default.
func classesOf(set, profile *v1alpha1.AllowedClasses) *v1alpha1.AllowedClasses {
	switch {
	case set == nil:
		return profile
	case !onlyDefault(set) || profile == nil:
		return set
	}
	classes := *profile
	classes.Default = set.Default
	return &classes
}

// onlyDefault reports whether a limit has a default and limits nothing.
func onlyDefault(c *v1alpha1.AllowedClasses) bool {
	return c.Default != "" && c.Allowed == nil && c.Expression == "" && c.Selector == nil
}

// takeDefaults removes the default classes from the limits and returns them, or nil if there is
// none. A limit that has only a default becomes nil, since the rules read it as a limit that
// allows nothing.
func takeDefaults(limits *v1alpha1.Posture) *v1alpha1.DefaultClasses {
	defaults := v1alpha1.DefaultClasses{}
	for _, of := range []struct {
		limit **v1alpha1.AllowedClasses
		name  *string
	}{
		{&limits.Workloads.PriorityClasses, &defaults.PriorityClass},
		{&limits.Workloads.RuntimeClasses, &defaults.RuntimeClass},
		{&limits.Network.IngressClasses, &defaults.IngressClass},
		{&limits.Network.GatewayClasses, &defaults.GatewayClass},
		{&limits.Storage.Classes, &defaults.StorageClass},
	} {
		if *of.limit == nil || (*of.limit).Default == "" {
			continue
		}
		*of.name = (*of.limit).Default
		if onlyDefault(*of.limit) {
			*of.limit = nil
			continue
		}
		limit := **of.limit
		limit.Default = ""
		*of.limit = &limit
	}
	if defaults == (v1alpha1.DefaultClasses{}) {
		return nil
	}
	return &defaults
}

package tenancy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// UnallowedDefault returns an error that names the first default of a Tenant that neither the Tenant nor the
// profile allows, or nil. [Parameters] leaves such a default out, since the rules would refuse each object that
// gets it. A class that a selector of the profile may select counts as allowed.
func UnallowedDefault(t *v1alpha1.Tenant, profile *v1alpha1.TenancyProfile) error {
	if t == nil {
		return nil
	}
	common, own := &profile.Spec.Tenants, &v1alpha1.Posture{Workloads: t.Spec.Workloads, Network: t.Spec.Network, Storage: t.Spec.Storage}
	for _, l := range classLimits {
		set, limit := l.of(own), l.of(common)
		if set != nil && limit != nil && onlyDefault(set) && !onlyDefault(limit) && !mayHave(limit, set.Default) {
			return fmt.Errorf("spec.%[1]s.default is %[2]s, which the TenancyProfile does not allow: allow it in spec.%[1]s.allowed, or choose another class", l.field, set.Default)
		}
	}
	if set, common := t.Spec.Workloads.Images, common.Workloads.Images; set != nil && common != nil && set.PullPolicies == nil && set.PullPolicy != "" && firstAllowed(common.PullPolicies, set.PullPolicy) == "" {
		return fmt.Errorf("spec.workloads.images.pullPolicy is %s, and the TenancyProfile allows %s: allow it in spec.workloads.images.pullPolicies, or choose another one", set.PullPolicy, strings.Join(common.PullPolicies, ", "))
	}
	return nil
}

// mayHave reports whether a limit may allow a class. It returns true for a limit with a selector,
// because it does not know which classes the selector selects.
func mayHave(limit *v1alpha1.AllowedClasses, class string) bool {
	if limit.Selector != nil || slices.ContainsFunc(limit.Allowed, func(p v1alpha1.ValuePattern) bool {
		return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(string(p)), `\*`, ".*") + "$").MatchString(class)
	}) {
		return true
	}
	expression, err := regexp.Compile(limit.Expression)
	return err == nil && limit.Expression != "" && expression.MatchString(class)
}

// classesOf returns the classes that a tenant may have: the Tenant's, or the profile's if the
// Tenant sets none or only a default. A default that the profile does not allow is left out.
func classesOf(set, profile *v1alpha1.AllowedClasses) *v1alpha1.AllowedClasses {
	switch {
	case set == nil:
		return profile
	case !onlyDefault(set) || profile == nil:
		return set
	}
	if !onlyDefault(profile) && !mayHave(profile, set.Default) {
		return profile
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

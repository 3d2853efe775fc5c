package tenancy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// maxPatterns is how many patterns the schema lets a kind of source have.
const maxPatterns = 64

// cleanAddress is what an address has to look like to be a pattern that matches
// itself and nothing else: see the schema of a Tenant's sync.
var cleanAddress = regexp.MustCompile(`^(https?|ssh|oci)://([a-z0-9_-]+@)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$`)

// Parameters returns what holds in the namespaces of a tenant: the profile, with
// each part that the Tenant's policy has in its place, and the addresses of its
// sync among those that may be fetched from. The Tenant may be nil.
func Parameters(name string, t *v1alpha1.Tenant, profile *v1alpha1.TenancyProfile) v1alpha1.TenantParametersSpec {
	spec := v1alpha1.TenantParametersSpec{Tenant: name, TenancyProfileSpec: *profile.Spec.DeepCopy()}
	if t == nil {
		return spec
	}
	spec.Cordoned = t.Spec.Cordoned
	policy := t.Spec.Policy.DeepCopy()
	own := &spec.Tenants
	if policy.Accounts != nil {
		own.Accounts = *policy.Accounts
	}
	if policy.Sources != nil {
		own.Sources = *policy.Sources
	}
	if policy.Bounds != nil {
		own.Bounds = *policy.Bounds
	}
	if policy.Notifications != nil {
		own.Notifications = *policy.Notifications
	}
	if policy.KubeConfigs != nil {
		own.KubeConfigs = policy.KubeConfigs
	}
	for _, s := range t.Spec.Sync {
		switch {
		case s.Git != nil:
			own.Sources.Git = withAddress(own.Sources.Git, s.Git.URL)
		case s.OCI != nil:
			own.Sources.OCI = withAddress(own.Sources.OCI, s.OCI.URL)
		}
	}
	return spec
}

// withAddress adds an address to patterns. One that cannot be a pattern is left
// out: parameters that the schema refuses would leave the namespace to the profile.
// Its source is then refused, which the Tenant says.
func withAddress(patterns []v1alpha1.AddressPattern, address string) []v1alpha1.AddressPattern {
	pattern := v1alpha1.AddressPattern(address)
	if len(patterns) >= maxPatterns || slices.Contains(patterns, pattern) || strings.Contains(address, "..") || !cleanAddress.MatchString(address) {
		return patterns
	}
	return append(patterns, pattern)
}

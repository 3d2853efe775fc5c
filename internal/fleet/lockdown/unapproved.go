package lockdown

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
)

// sourcesNote names the sources in tenants' namespaces whose addresses the fleet's TenancyProfile does not approve, such as
// those of a tenant that got its label after the profile was written, and the flags that approve them. It
// returns "" if there are none. Tenants with approved addresses of their own and addresses with variables are left out.
func (s *survey) sourcesNote() string {
	approved := map[string][]v1alpha1.AddressPattern{}
	profiles, own := 0, map[string]bool{}
	for _, o := range s.objects {
		switch {
		case o.GetKind() == "TenancyProfile":
			profiles++
			for _, kind := range allowed {
				patterns, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "tenants", "sources", kind)
				for _, p := range patterns {
					approved[kind] = append(approved[kind], v1alpha1.AddressPattern(p))
				}
			}
		case o.GetKind() == "Tenant" && o.has("spec", "policy", "sources"):
			own[o.GetName()] = true
		}
	}
	var refused, flags []string
	for _, o := range s.objects {
		tenant := s.tenants[o.GetNamespace()]
		kind, pattern := o.address()
		if profiles == 0 || tenant == "" || own[tenant] || kind == "" || strings.Contains(string(pattern), "$") {
			continue
		}
		patterns := approved[kind]
		if kind == "helm" && strings.HasPrefix(string(pattern), "oci:") {
			patterns = slices.Concat(patterns, approved["oci"])
		}
		if !tenancy.MatchesAddress(patterns, string(pattern)) {
			refused = append(refused, o.String())
			flags = append(flags, "--allow "+kind+"="+string(pattern))
		}
	}
	if len(refused) == 0 {
		return ""
	}
	slices.Sort(flags)
	return "the rule tenure-sources refuses these sources of tenants, because the TenancyProfile does not approve their addresses: " + strings.Join(refused, ", ") +
		"; to approve them, run this again with " + strings.Join(slices.Compact(flags), " ")
}

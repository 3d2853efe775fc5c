package tenancy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
)

func TestDefaultClasses(t *testing.T) {
	t.Parallel()
	classes := func(name string, allowed ...v1alpha1.ValuePattern) *v1alpha1.AllowedClasses {
		return &v1alpha1.AllowedClasses{AllowedNames: v1alpha1.AllowedNames{Allowed: allowed}, Default: name}
	}
	for name, tc := range map[string]struct {
		reason           string
		tenant, profile  *v1alpha1.AllowedClasses
		want             *v1alpha1.AllowedClasses
		wantDefaultClass string
	}{
		"none":      {"nothing is set", nil, nil, nil, ""},
		"profile":   {"the profile has a default for all", nil, classes("slow"), nil, "slow"},
		"only":      {"a default is no limit", classes("fast"), nil, nil, "fast"},
		"keeps":     {"a default does not lift the profile's limit", classes("fast"), classes("", "fast"), classes("", "fast"), "fast"},
		"instead":   {"a default replaces the profile's", classes("fast"), classes("slow", "fast", "slow"), classes("", "fast", "slow"), "fast"},
		"own limit": {"a limit replaces the profile's with its default", classes("", "fast"), classes("slow", "slow"), classes("", "fast"), ""},
		"nothing":   {"an empty limit still allows nothing", &v1alpha1.AllowedClasses{}, classes("slow", "slow"), &v1alpha1.AllowedClasses{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenant, profile := &v1alpha1.Tenant{}, &v1alpha1.TenancyProfile{}
			set := func(w *v1alpha1.Workloads, n *v1alpha1.Network, s *v1alpha1.Storage, c *v1alpha1.AllowedClasses) {
				w.PriorityClasses, w.RuntimeClasses, n.IngressClasses, n.GatewayClasses, s.Classes = c, c, c, c, c
			}
			set(&tenant.Spec.Workloads, &tenant.Spec.Network, &tenant.Spec.Storage, tc.tenant)
			set(&profile.Spec.Tenants.Workloads, &profile.Spec.Tenants.Network, &profile.Spec.Tenants.Storage, tc.profile)
			before := profile.DeepCopy()
			got := Parameters("dev", tenant, profile)
			want := v1alpha1.Posture{}
			set(&want.Workloads, &want.Network, &want.Storage, tc.want)
			if diff := cmp.Diff(want, got.Tenants); diff != "" {
				t.Errorf("%s: the limits (-want +got):\n%s", tc.reason, diff)
			}
			var defaults *v1alpha1.DefaultClasses
			if d := tc.wantDefaultClass; d != "" {
				defaults = &v1alpha1.DefaultClasses{PriorityClass: d, RuntimeClass: d, IngressClass: d, GatewayClass: d, StorageClass: d}
			}
			if diff := cmp.Diff(defaults, got.DefaultClasses); diff != "" {
				t.Errorf("%s: the defaults (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, profile); diff != "" {
				t.Errorf("%s: the profile was changed (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

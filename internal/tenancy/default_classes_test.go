package tenancy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"refused":   {"a default that the profile does not allow is left out", classes("fast"), classes("slow", "s*"), classes("", "s*"), "slow"},
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

// A Tenant and the profile may contradict each other: no default is set that the rules then refuse, and the
// Tenant's status names it.
func TestUnallowedDefault(t *testing.T) {
	t.Parallel()
	limit := func(change func(*v1alpha1.AllowedClasses)) *v1alpha1.AllowedClasses {
		c := &v1alpha1.AllowedClasses{}
		change(c)
		return c
	}
	allowed := func(names ...v1alpha1.ValuePattern) *v1alpha1.AllowedClasses {
		return limit(func(c *v1alpha1.AllowedClasses) { c.Allowed = names })
	}
	fast := limit(func(c *v1alpha1.AllowedClasses) { c.Default = "fast" })
	images := func(policy string, policies ...string) *v1alpha1.Images {
		return &v1alpha1.Images{PullPolicy: policy, PullPolicies: policies}
	}
	for reason, tc := range map[string]struct {
		set, profile             *v1alpha1.AllowedClasses
		setImages, profileImages *v1alpha1.Images
		want                     string
		wantPolicy               string
	}{
		"nothing is set":                                          {},
		"the profile has no limit":                                {set: fast, setImages: images("Never"), wantPolicy: "Never"},
		"the profile has a default alone":                         {set: fast, profile: limit(func(c *v1alpha1.AllowedClasses) { c.Default = "slow" })},
		"the profile allows the class":                            {set: fast, profile: allowed("slow", "fast")},
		"a pattern of the profile does":                           {set: fast, profile: allowed("f*")},
		"an expression of the profile does":                       {set: fast, profile: limit(func(c *v1alpha1.AllowedClasses) { c.Expression = "^fa" })},
		"a selector of the profile may":                           {set: fast, profile: limit(func(c *v1alpha1.AllowedClasses) { c.Selector = &metav1.LabelSelector{} })},
		"the profile allows another class":                        {set: fast, profile: allowed("slow", "fas", "*.fast"), want: "storage.classes.default is fast"},
		"an expression of the profile allows another":             {set: fast, profile: limit(func(c *v1alpha1.AllowedClasses) { c.Expression = "^slow" }), want: "storage.classes.default is fast"},
		"the profile allows none":                                 {set: fast, profile: &v1alpha1.AllowedClasses{}, want: "storage.classes.default is fast"},
		"the Tenant allows what the profile does not":             {set: limit(func(c *v1alpha1.AllowedClasses) { c.Default, c.Allowed = "fast", []v1alpha1.ValuePattern{"fast"} }), profile: allowed("slow")},
		"the profile allows the pull policy":                      {setImages: images("Never"), profileImages: images("", "Never"), wantPolicy: "Never"},
		"the profile allows another pull policy":                  {setImages: images("Never"), profileImages: images("Always", "Always"), want: "workloads.images.pullPolicy is Never, and the TenancyProfile allows Always", wantPolicy: "Always"},
		"the Tenant allows it":                                    {setImages: images("Never", "Never"), profileImages: images("Always", "Always"), wantPolicy: "Never"},
		"the Tenant does not allow the profile's pull policy":     {setImages: images("", "Never"), profileImages: images("Always", "Always")},
		"the Tenant sets something else, and the profile's stays": {setImages: &v1alpha1.Images{Digests: v1alpha1.DigestsRequired}, profileImages: images("Always", "Always"), wantPolicy: "Always"},
	} {
		tenant, profile := &v1alpha1.Tenant{}, &v1alpha1.TenancyProfile{}
		tenant.Spec.Storage.Classes, profile.Spec.Tenants.Storage.Classes = tc.set, tc.profile
		tenant.Spec.Workloads.Images, profile.Spec.Tenants.Workloads.Images = tc.setImages, tc.profileImages
		err := UnallowedDefault(tenant, profile)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", reason, err, tc.want)
		}
		if got := Parameters("dev", tenant, profile).Tenants.Workloads.Images; got != nil && got.PullPolicy != tc.wantPolicy {
			t.Errorf("%s: new Pods get the pull policy %q, want %q", reason, got.PullPolicy, tc.wantPolicy)
		}
	}
	if err := UnallowedDefault(nil, &v1alpha1.TenancyProfile{}); err != nil {
		t.Errorf("without a Tenant: %v", err)
	}
}

// Each field that makes the policy tenure-defaults change an object keeps the label that selects the namespace for it.
func TestParametersLabel(t *testing.T) {
	t.Parallel()
	capsule := map[string]string{v1alpha1.LabelCapsuleTenant: "oil"}
	for reason, tc := range map[string]struct {
		objects Objects
		labels  map[string]string
		want    string
	}{
		"no default":                   {Objects{Parameters: &v1alpha1.TenantParameters{}}, map[string]string{v1alpha1.LabelTenant: "dev"}, v1alpha1.ParametersWithoutDefaults},
		"no parameters":                {Objects{}, nil, ManagedValue},
		"claims of Capsule's Tenant":   {Objects{Parameters: &v1alpha1.TenantParameters{}}, capsule, ManagedValue},
		"the manager adds that label":  {Objects{Parameters: &v1alpha1.TenantParameters{}, Labels: capsule}, nil, ManagedValue},
		"limits without a pull policy": {withLimits(func(p *v1alpha1.Posture) { p.Workloads.Images = &v1alpha1.Images{Digests: "Required"} }), nil, v1alpha1.ParametersWithoutDefaults},
		"a pull policy":                {withLimits(func(p *v1alpha1.Posture) { p.Workloads.Images = &v1alpha1.Images{PullPolicy: "Always"} }), nil, ManagedValue},
		"nodes":                        {withLimits(func(p *v1alpha1.Posture) { p.Workloads.Nodes = &v1alpha1.Nodes{} }), nil, ManagedValue},
		"metadata of Pods":             {withLimits(func(p *v1alpha1.Posture) { p.Workloads.Metadata = &v1alpha1.ObjectMetadata{} }), nil, ManagedValue},
		"Services without metadata":    {withLimits(func(p *v1alpha1.Posture) { p.Network.Services = &v1alpha1.Services{} }), nil, v1alpha1.ParametersWithoutDefaults},
		"metadata of Services": {withLimits(func(p *v1alpha1.Posture) {
			p.Network.Services = &v1alpha1.Services{Metadata: &v1alpha1.ObjectMetadata{}}
		}), nil, ManagedValue},
		"a default class": {Objects{Parameters: &v1alpha1.TenantParameters{Spec: v1alpha1.TenantParametersSpec{DefaultClasses: &v1alpha1.DefaultClasses{StorageClass: "fast"}}}}, nil, ManagedValue},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			if got := tc.objects.ParametersLabel(tc.labels); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// withLimits returns objects whose parameters have limits.
func withLimits(set func(*v1alpha1.Posture)) Objects {
	p := &v1alpha1.TenantParameters{}
	set(&p.Spec.Tenants)
	return Objects{Parameters: p}
}

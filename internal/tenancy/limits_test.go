package tenancy

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// Each field of the limits that a Tenant sets replaces the profile's field, and no other one.
func TestLimitsOfATenant(t *testing.T) {
	t.Parallel()
	names := func(name string) *v1alpha1.AllowedNames {
		return &v1alpha1.AllowedNames{Allowed: []v1alpha1.ValuePattern{v1alpha1.ValuePattern(name)}}
	}
	classes := func(name string) *v1alpha1.AllowedClasses {
		return &v1alpha1.AllowedClasses{AllowedNames: *names(name)}
	}
	full := func(name string) *v1alpha1.TenancyProfile {
		return &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{Tenants: v1alpha1.Posture{
			Workloads: v1alpha1.Workloads{
				Images: &v1alpha1.Images{
					Registries: []v1alpha1.ImagePattern{v1alpha1.ImagePattern(name)}, RegistryExpression: name,
					PullPolicies: []string{name}, PullPolicy: name, Digests: name, Registry: name,
				},
				PriorityClasses: classes(name), RuntimeClasses: classes(name), DeviceClasses: classes(name),
				Schedulers: []string{name}, Tolerations: []v1alpha1.ValuePattern{v1alpha1.ValuePattern(name)},
				Nodes:     &v1alpha1.Nodes{Selector: map[string]v1alpha1.LabelValue{"pool": v1alpha1.LabelValue(name)}},
				HostPorts: []v1alpha1.PortRange{v1alpha1.PortRange(name)}, AutomountTokens: name, PodAnnotations: names(name),
				Metadata: &v1alpha1.ObjectMetadata{Annotations: map[string]string{"a": name}},
			},
			Network: v1alpha1.Network{
				Services: &v1alpha1.Services{
					Types: []string{name}, ExternalIPs: []v1alpha1.AddressRange{v1alpha1.AddressRange(name)}, LoadBalancerIPs: []v1alpha1.AddressRange{v1alpha1.AddressRange(name)}, LoadBalancerClasses: names(name),
					NodePorts: []v1alpha1.PortRange{v1alpha1.PortRange(name)}, Endpoints: []v1alpha1.AddressRange{v1alpha1.AddressRange(name)}, AllowedAnnotations: names(name),
					DeniedLabels: []v1alpha1.ValuePattern{v1alpha1.ValuePattern(name)}, DeniedAnnotations: []v1alpha1.ValuePattern{v1alpha1.ValuePattern(name)},
					DeniedLabelExpression: name, DeniedAnnotationExpression: name, Metadata: &v1alpha1.ObjectMetadata{Labels: map[string]v1alpha1.LabelValue{"a": v1alpha1.LabelValue(name)}},
				},
				Isolation: name, Hosts: names(name), IngressClasses: classes(name), GatewayClasses: classes(name), Gateways: names(name), IngressAnnotations: names(name),
			},
			Storage: v1alpha1.Storage{Classes: classes(name), AttributesClasses: names(name), Volumes: names(name), ExistingVolumes: new(name == "tenant"), CopyAnnotations: names(name)},
		}}}
	}
	profile, tenants := full("profile"), full("tenant").Spec.Tenants
	for reason, tc := range map[string]struct {
		set  func(*v1alpha1.TenantSpec)
		want func(*v1alpha1.Posture)
	}{
		"no field": {func(*v1alpha1.TenantSpec) {}, func(*v1alpha1.Posture) {}},
		"all fields": {
			func(s *v1alpha1.TenantSpec) {
				s.Workloads, s.Network, s.Storage = tenants.Workloads, tenants.Network, tenants.Storage
			},
			func(p *v1alpha1.Posture) {
				p.Workloads, p.Network, p.Storage = tenants.Workloads, tenants.Network, tenants.Storage
			},
		},
		"one way to name registries replaces both": {
			func(s *v1alpha1.TenantSpec) { s.Workloads.Images = &v1alpha1.Images{RegistryExpression: "tenant"} },
			func(p *v1alpha1.Posture) {
				p.Workloads.Images.Registries, p.Workloads.Images.RegistryExpression = nil, "tenant"
			},
		},
		"a part of the limits of Services": {
			func(s *v1alpha1.TenantSpec) { s.Network.Services = &v1alpha1.Services{Types: []string{"tenant"}} },
			func(p *v1alpha1.Posture) { p.Network.Services.Types = []string{"tenant"} },
		},
		"an empty list allows nothing": {
			func(s *v1alpha1.TenantSpec) { s.Workloads.Tolerations = []v1alpha1.ValuePattern{} },
			func(p *v1alpha1.Posture) { p.Workloads.Tolerations = []v1alpha1.ValuePattern{} },
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			tenant, want := &v1alpha1.Tenant{}, profile.DeepCopy().Spec.Tenants
			tc.set(&tenant.Spec)
			tc.want(&want)
			if diff := cmp.Diff(want, Parameters("dev", tenant, profile).Tenants); diff != "" {
				t.Errorf("the limits (-want +got):\n%s", diff)
			}
		})
	}
	// A new field must be set above, or nothing shows that a Tenant can set it.
	for _, limits := range []any{tenants.Workloads, *tenants.Workloads.Images, tenants.Network, *tenants.Network.Services, tenants.Storage} {
		for v, i := reflect.ValueOf(limits), 0; i < v.NumField(); i++ {
			if v.Field(i).IsZero() {
				t.Errorf("%s of %T is not tested", v.Type().Field(i).Name, limits)
			}
		}
	}
}

package capsule

import (
	"fmt"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
)

// workloads are fields about what the tenant runs. They hold it back, and are
// not enforced yet; those that only add something are reported.
func (t *translation) workloads() {
	spec := &t.tenant.Spec
	if l := spec.ContainerRegistries; l != nil && (len(l.Allowed) > 0 || l.AllowedRegex != "") {
		t.unenforced("spec.containerRegistries", "images may come from anywhere")
	}
	t.regex("spec.containerRegistries.allowedRegex", spec.ContainerRegistries)
	if len(spec.ImagePullPolicies) > 0 {
		t.unenforced("spec.imagePullPolicies", "Pods may have every pull policy")
	}
	t.ingress()
	if g := spec.GatewayOptions; g != nil {
		t.classes("spec.gatewayOptions.allowedClasses", "Gateways may name every class", g.AllowedClasses)
	}
	t.services()
	t.added("spec.podOptions.additionalMetadata", "Pods do not get it", spec.PodOptions != nil && isSet(spec.PodOptions.AdditionalMetadata))
	t.classes("spec.storageClasses", "claims may name every class", spec.StorageClasses)
	t.classes("spec.priorityClasses", "Pods may name every class", spec.PriorityClasses)
	t.classes("spec.runtimeClasses", "Pods may name every class", spec.RuntimeClasses)
	if d := spec.DeviceClasses; d != nil {
		t.selected("spec.deviceClasses", "resource claims may name every class", *d)
	}
	if len(spec.Rules) > 0 {
		t.unenforced("spec.rules", "rules are not understood")
	}
}

func (t *translation) unenforced(field, effect string) {
	t.note(Unenforced, field, "it is not enforced: %s", effect)
}

func (t *translation) added(field, effect string, is bool) {
	if is {
		t.note(Reported, field, "%s", effect)
	}
}

func isSet(m *v1beta2.Metadata) bool {
	return m != nil && (len(m.Labels) > 0 || len(m.Annotations) > 0)
}

// regex refuses what does not compile, also where it is not enforced: it is a
// mistake that would come to light the day it is.
func (t *translation) regex(field string, l *v1beta2.AllowedList) {
	if l == nil || l.AllowedRegex == "" {
		return
	}
	if err := compiles(l.AllowedRegex); err != nil {
		t.note(Refused, field, "%v", err)
	}
}

func (t *translation) selected(field, effect string, l v1beta2.SelectorAllowedList) {
	// A list that allows nothing allows nothing: it holds back all the more.
	t.unenforced(field, effect)
	t.regex(field+".allowedRegex", &l.AllowedList)
}

func (t *translation) classes(field, effect string, l *v1beta2.DefaultAllowedList) {
	if l == nil {
		return
	}
	if l.Default != "" {
		t.note(Reported, field+".default", "there is no default for the tenant")
	}
	if len(l.Allowed) > 0 || l.AllowedRegex != "" || len(l.MatchLabels) > 0 || len(l.MatchExpressions) > 0 || l.Default == "" {
		t.selected(field, effect, l.SelectorAllowedList)
	}
}

func (t *translation) ingress() {
	o := t.tenant.Spec.IngressOptions
	if o == nil {
		return
	}
	t.classes("spec.ingressOptions.allowedClasses", "Ingresses may name every class", o.AllowedClasses)
	if o.AllowedHostnames != nil {
		t.unenforced("spec.ingressOptions.allowedHostnames", "Ingresses may have every host")
		t.regex("spec.ingressOptions.allowedHostnames.allowedRegex", o.AllowedHostnames)
	}
	if s := o.HostnameCollisionScope; s != "" && s != "Disabled" {
		t.unenforced("spec.ingressOptions.hostnameCollisionScope", "two Ingresses may have one host")
	}
	if !o.AllowWildcardHostnames {
		t.note(Reported, "spec.ingressOptions.allowWildcardHostnames", "hosts that begin with an asterisk are not refused")
	}
}

func (t *translation) services() {
	o := t.tenant.Spec.ServiceOptions
	if o == nil {
		return
	}
	t.added("spec.serviceOptions.additionalMetadata", "Services do not get it", isSet(o.AdditionalMetadata))
	if a := o.AllowedServices; a != nil {
		for _, part := range []struct {
			field, kind string
			allowed     *bool
		}{{"nodePort", "NodePort", a.NodePort}, {"externalName", "ExternalName", a.ExternalName}, {"loadBalancer", "LoadBalancer", a.LoadBalancer}} {
			if part.allowed != nil && !*part.allowed {
				t.unenforced("spec.serviceOptions.allowedServices."+part.field, fmt.Sprintf("Services may be of type %s", part.kind))
			}
		}
	}
	if o.ExternalIPs != nil {
		t.unenforced("spec.serviceOptions.externalIPs", "Services may have every external address")
	}
	for _, part := range []struct {
		field string
		list  *v1beta2.ForbiddenList
	}{{"forbiddenLabels", o.ForbiddenLabels}, {"forbiddenAnnotations", o.ForbiddenAnnotations}} {
		if l := part.list; l != nil && (len(l.Denied) > 0 || l.DeniedRegex != "") {
			t.unenforced("spec.serviceOptions."+part.field, "Services may have them")
			if err := compiles(l.DeniedRegex); err != nil {
				t.note(Refused, "spec.serviceOptions."+part.field+".deniedRegex", "%v", err)
			}
		}
	}
}

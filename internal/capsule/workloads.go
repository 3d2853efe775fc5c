package capsule

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxAllowed is the maximum number of entries of a list in [v1alpha1.AllowedNames].
const maxAllowed = 64

// maxAllowedExpression is the maximum length of an expression in [v1alpha1.AllowedNames], in
// bytes.
const maxAllowedExpression = 512

// workloads translates the fields about Pods, Services, routes and volumes. The hosts are [Input.Hosts].
func (t *translation) workloads(hosts *v1alpha1.AllowedNames) {
	spec := &t.tenant.Spec
	t.images()
	t.ingress(hosts)
	if g := spec.GatewayOptions; g != nil {
		t.spec.Network.GatewayClasses = t.classes("spec.gatewayOptions.allowedClasses", g.AllowedClasses)
	}
	t.services()
	if spec.PodOptions != nil {
		t.spec.Workloads.Metadata = t.objectMetadata("spec.podOptions.additionalMetadata", spec.PodOptions.AdditionalMetadata)
	}
	t.spec.Storage.Classes = t.classes("spec.storageClasses", spec.StorageClasses)
	t.spec.Workloads.PriorityClasses = t.classes("spec.priorityClasses", spec.PriorityClasses)
	t.spec.Workloads.RuntimeClasses = t.classes("spec.runtimeClasses", spec.RuntimeClasses)
	if d := spec.DeviceClasses; d != nil {
		t.spec.Workloads.DeviceClasses = t.selected("spec.deviceClasses", *d)
	}
	t.rules()
	t.lists()
}

// lists writes the names and expressions of lists into annotations of the namespaces, which Capsule's
// clients read.
func (t *translation) lists() {
	spec := &t.tenant.Spec
	if l := spec.ContainerRegistries; l != nil {
		t.list("allowed-registries", l.Allowed, l.AllowedRegex)
	}
	if o := spec.IngressOptions; o != nil && o.AllowedClasses != nil {
		t.list("ingress-classes", o.AllowedClasses.Allowed, o.AllowedClasses.AllowedRegex)
	}
	if l := spec.StorageClasses; l != nil {
		t.list("storage-classes", l.Allowed, l.AllowedRegex)
	}
}

func (t *translation) list(name string, allowed []string, expression string) {
	for key, value := range map[string]string{name: strings.Join(allowed, ","), name + "-regexp": expression} {
		if value != "" && len(t.spec.Namespaces.Annotations) < maxMetadata {
			t.spec.Namespaces.Annotations = with(t.spec.Namespaces.Annotations, capsuleDomain+"/"+key, value)
		}
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

// registry is the syntax of a registry name, with or without a repository. A name is localhost, or has a dot or
// a port: without them, the name of an image begins with a repository of Docker Hub.
var registry = regexp.MustCompile(`^(localhost|[a-z0-9][a-z0-9-]*:[0-9]{1,5}|[a-z0-9][a-z0-9-]*([.][a-z0-9-]*[a-z0-9])+(:[0-9]{1,5})?)(/[a-z0-9._-]+)*$`)

// noRegistry is an expression that matches the name of no registry.
const noRegistry = "^$"

// images translates the registries and the pull policies. Capsule compares the name of the registry, so an
// entry allows all repositories of the registry, and Capsule refuses an image that names no registry.
func (t *translation) images() {
	spec := &t.tenant.Spec
	images := &v1alpha1.Images{}
	if l := spec.ContainerRegistries; l != nil {
		images.RegistryExpression = t.expression("spec.containerRegistries.allowedRegex", l.AllowedRegex)
		for i, name := range l.Allowed {
			if !registry.MatchString(name) {
				t.note(Refused, fmt.Sprintf("spec.containerRegistries.allowed[%d]", i), "%q is not the name of a registry, which has a dot or a port: no image would match", name)
				continue
			}
			images.Registries = append(images.Registries, v1alpha1.ImagePattern(name+"/**"))
		}
		t.bounded("spec.containerRegistries.allowed", len(images.Registries))
		if len(l.Allowed) == 0 && l.AllowedRegex == "" {
			// As with Capsule, an empty list allows no image.
			images.RegistryExpression = noRegistry
		}
		if len(images.Registries) > 0 || images.RegistryExpression != "" {
			images.Registry = v1alpha1.RegistryRequired
		}
	}
	for _, policy := range spec.ImagePullPolicies {
		images.PullPolicies = append(images.PullPolicies, string(policy))
	}
	if len(images.Registries)+len(images.PullPolicies) > 0 || images.RegistryExpression != "" {
		t.spec.Workloads.Images = images
	}
}

func (t *translation) bounded(field string, entries int) {
	if entries > maxAllowed {
		t.note(Refused, field, "there are %d entries, and at most %d can be kept", entries, maxAllowed)
	}
}

// expression checks a regular expression and returns it. Capsule and the API server use the same syntax.
func (t *translation) expression(field, regex string) string {
	if regex == "" {
		return ""
	}
	if err := compiles(regex); err != nil {
		t.note(Refused, field, "%v", err)
		return ""
	}
	if len(regex) > maxAllowedExpression {
		t.note(Refused, field, "it is longer than %d bytes", maxAllowedExpression)
		return ""
	}
	return regex
}

// names translates a list of names. It omits entries that cannot be names, since they would allow nothing.
func (t *translation) names(field string, l v1beta2.AllowedList) *v1alpha1.AllowedNames {
	names := &v1alpha1.AllowedNames{Expression: t.expression(field+".allowedRegex", l.AllowedRegex)}
	for i, name := range l.Allowed {
		switch pattern := v1alpha1.ValuePattern(name); {
		case strings.Contains(name, anything) || !validPattern(name):
			t.note(Different, fmt.Sprintf("%s.allowed[%d]", field, i), "%q allows nothing: no class and no host has this name", name)
		case !slices.Contains(names.Allowed, pattern):
			names.Allowed = append(names.Allowed, pattern)
		}
	}
	t.bounded(field+".allowed", len(names.Allowed))
	return names
}

// selected translates a list of classes, with a selector of their labels if there is one.
func (t *translation) selected(field string, l v1beta2.SelectorAllowedList) *v1alpha1.AllowedClasses {
	classes := &v1alpha1.AllowedClasses{AllowedNames: *t.names(field, l.AllowedList)}
	if len(l.MatchLabels)+len(l.MatchExpressions) == 0 {
		return classes
	}
	selector, err := selectorOf(&l.LabelSelector)
	if err != nil {
		t.note(Refused, field, "%v", err)
		return classes
	}
	classes.Selector = selector
	return classes
}

func (t *translation) classes(field string, l *v1beta2.DefaultAllowedList) *v1alpha1.AllowedClasses {
	if l == nil {
		return nil
	}
	classes := t.selected(field, l.SelectorAllowedList)
	switch {
	case l.Default == "":
	case len(validation.IsDNS1123Subdomain(l.Default)) > 0:
		t.note(Refused, field+".default", "%q is not the name of a class", l.Default)
	default:
		classes.Default = l.Default
		if !allowsName(classes.AllowedNames, l.Default) {
			// A default is allowed, as with Capsule. Without other entries, it is the only class that is allowed.
			classes.Allowed = append(classes.Allowed, v1alpha1.ValuePattern(l.Default))
			t.bounded(field+".allowed", len(classes.Allowed))
		}
		t.note(Different, field+".default", byDefaults)
	}
	return classes
}

// allowsName reports whether translated names, which contain no asterisks, allow a name.
func allowsName(names v1alpha1.AllowedNames, name string) bool {
	if slices.Contains(names.Allowed, v1alpha1.ValuePattern(name)) {
		return true
	}
	// The expression was compiled before.
	matches, _ := regexp.MatchString(names.Expression, name)
	return names.Expression != "" && matches
}

func (t *translation) ingress(hosts *v1alpha1.AllowedNames) {
	o := t.tenant.Spec.IngressOptions
	if o == nil {
		o = &v1beta2.IngressOptions{}
	}
	t.spec.Network.IngressClasses = t.classes("spec.ingressOptions.allowedClasses", o.AllowedClasses)
	switch {
	case o.AllowedHostnames != nil:
		t.spec.Network.Hosts = t.names("spec.ingressOptions.allowedHostnames", *o.AllowedHostnames)
		if o.AllowWildcardHostnames {
			t.note(Different, "spec.ingressOptions.allowWildcardHostnames", "hosts that begin with an asterisk are refused, since allowedHostnames is set")
		}
	case o.AllowWildcardHostnames && t.tenant.Annotations[wildcardAnnotation] != "true":
		t.spec.Network.Hosts = &v1alpha1.AllowedNames{Allowed: []v1alpha1.ValuePattern{anything}}
	default:
		t.spec.Network.Hosts = t.withoutWildcards(hosts)
	}
	if s := o.HostnameCollisionScope; s != "" && s != "Disabled" {
		t.spec.Namespaces.Labels[v1beta2.LabelCollisionScope] = s
	}
}

// withoutWildcards returns the hosts of the TenancyProfile that a Tenant of Capsule's has: see [WithoutWildcards].
func (t *translation) withoutWildcards(hosts *v1alpha1.AllowedNames) *v1alpha1.AllowedNames {
	out := WithoutWildcards(hosts)
	if out != nil && len(out.Expression) > maxAllowedExpression {
		t.note(Refused, "spec.ingressOptions.allowWildcardHostnames", "the hosts of the TenancyProfile that begin with an asterisk are too many to leave out: set true, or set allowedHostnames")
		return nil
	}
	return out
}

// WithoutWildcards returns the same hosts, except for those that begin with an asterisk, which a Tenant of
// Capsule's must allow itself. It returns nil if the hosts contain none. Entries of the list allow hosts that
// begin with an asterisk; the expression does not, so it replaces the entries that match such hosts.
func WithoutWildcards(hosts *v1alpha1.AllowedNames) *v1alpha1.AllowedNames {
	if hosts == nil {
		return nil
	}
	out := &v1alpha1.AllowedNames{}
	var expressions []string
	for _, pattern := range hosts.Allowed {
		if !strings.HasPrefix(string(pattern), anything) {
			out.Allowed = append(out.Allowed, pattern)
			continue
		}
		expressions = append(expressions, "^"+strings.ReplaceAll(regexp.QuoteMeta(string(pattern)), `\*`, ".*")+"$")
	}
	if len(expressions) == 0 {
		return nil
	}
	if hosts.Expression != "" {
		expressions = append(expressions, "(?:"+hosts.Expression+")")
	}
	out.Expression = strings.Join(expressions, "|")
	return out
}

func (t *translation) services() {
	o := t.tenant.Spec.ServiceOptions
	if o == nil {
		return
	}
	out := &v1alpha1.Services{Metadata: t.objectMetadata("spec.serviceOptions.additionalMetadata", o.AdditionalMetadata)}
	if a := o.AllowedServices; a != nil {
		out.Types = []string{string(corev1.ServiceTypeClusterIP)}
		for _, part := range []struct {
			allowed *bool
			kind    corev1.ServiceType
		}{{a.NodePort, corev1.ServiceTypeNodePort}, {a.LoadBalancer, corev1.ServiceTypeLoadBalancer}, {a.ExternalName, corev1.ServiceTypeExternalName}} {
			if part.allowed == nil || *part.allowed {
				out.Types = append(out.Types, string(part.kind))
			}
		}
	}
	if o.ExternalIPs != nil {
		out.ExternalIPs = t.ranges(o.ExternalIPs.Allowed)
	}
	for _, part := range []struct {
		field      string
		list       *v1beta2.ForbiddenList
		out        *[]v1alpha1.ValuePattern
		expression *string
	}{
		{"forbiddenLabels", o.ForbiddenLabels, &out.DeniedLabels, &out.DeniedLabelExpression},
		{"forbiddenAnnotations", o.ForbiddenAnnotations, &out.DeniedAnnotations, &out.DeniedAnnotationExpression},
	} {
		if part.list == nil {
			continue
		}
		field := "spec.serviceOptions." + part.field
		t.denyNames(part.out, part.list.Denied, field+".denied")
		*part.expression = t.expression(field+".deniedRegex", part.list.DeniedRegex)
		t.bounded(field, len(*part.out))
	}
	t.spec.Network.Services = out
}

// noAddress is a range with the broadcast address only, which no Service has. An empty list of ranges would leave
// the decision to the TenancyProfile.
const noAddress = v1alpha1.AddressRange("255.255.255.255/32")

// ranges translates IP addresses and networks. As with Capsule, an empty list allows no address.
func (t *translation) ranges(addresses []string) []v1alpha1.AddressRange {
	if len(addresses) == 0 {
		return []v1alpha1.AddressRange{noAddress}
	}
	var all []v1alpha1.AddressRange
	for i, text := range addresses {
		prefix, ok := addressRange(text)
		if !ok {
			t.note(Refused, fmt.Sprintf("spec.serviceOptions.externalIPs.allowed[%d]", i), "%q is neither an address nor a network", text)
			continue
		}
		if r := v1alpha1.AddressRange(prefix.Masked().String()); !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	t.bounded("spec.serviceOptions.externalIPs.allowed", len(all))
	return all
}

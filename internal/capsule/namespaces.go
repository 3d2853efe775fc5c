package capsule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// podSecurity is the prefix of the labels of Pod Security admission.
	podSecurity = "pod-security.kubernetes.io/"
	// defaultLevel is the Pod Security level if the Tenant sets none.
	defaultLevel = "baseline"
	// nodeSelector is the annotation that the admission plugin PodNodeSelector reads.
	nodeSelector = "scheduler.alpha.kubernetes.io/node-selector"
)

func (t *translation) namespaces(configuration *v1beta2.CapsuleConfiguration) {
	out := &t.spec.Namespaces
	out.PodSecurity = defaultLevel
	out.Labels = map[string]string{v1alpha1.LabelCapsuleTenant: t.tenant.Name}
	// By default, Capsule lets owners choose any namespace name, unlike Tenure.
	out.Prefix = new(configuration != nil && configuration.Spec.ForceTenantPrefix)
	if configuration != nil {
		// [Check] reports the error of the expression.
		out.ForbiddenNameExpression = (&translation{}).expression("", configuration.Spec.ProtectedNamespaceRegex)
	}
	if own := t.tenant.Spec.ForceTenantPrefix; own != nil {
		out.Prefix = new(*own)
	}
	t.nodes()
	options := t.tenant.Spec.NamespaceOptions
	if options == nil {
		return
	}
	if options.Quota != nil {
		out.Quota = new(min(*options.Quota, maxNamespaces))
	}
	t.additionalMetadata(options)
	if len(out.Selected) > maxSelected {
		t.note(Refused, "spec.namespaceOptions.additionalMetadataList", "there are %d entries with a namespaceSelector or {{ namespace }}, and at most %d can be kept", len(out.Selected), maxSelected)
	}
	if len(out.Labels) > maxMetadata || len(out.Annotations) > maxMetadata {
		t.note(Refused, "spec.namespaceOptions", "at most %d labels and %d annotations can be kept", maxMetadata-1, maxMetadata)
	}
}

// nodes translates the labels of the nodes. The annotation has an effect only in clusters with the plugin
// PodNodeSelector.
func (t *translation) nodes() {
	const field = "spec.nodeSelector"
	selector := t.tenant.Spec.NodeSelector
	if len(selector) == 0 {
		return
	}
	if len(selector) > maxNodeLabels {
		t.note(Refused, field, "there are %d labels, and at most %d can be kept", len(selector), maxNodeLabels)
	}
	nodes := &v1alpha1.Nodes{Selector: map[string]v1alpha1.LabelValue{}}
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(selector[key])) > 0 {
			t.note(Refused, field+"["+key+"]", "it is not a label")
		}
		nodes.Selector[key] = v1alpha1.LabelValue(selector[key])
	}
	t.note(Different, field, "a Pod for other nodes is refused; the policy tenure-defaults, which needs Kubernetes 1.36, or the plugin PodNodeSelector gives new Pods the labels")
	t.spec.Workloads.Nodes = nodes
	t.annotation(field, nodeSelector, selectorText(selector))
}

// selectorText returns a selector in the format of the admission plugin PodNodeSelector.
func selectorText(selector map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		parts = append(parts, key+"="+selector[key])
	}
	return strings.Join(parts, ",")
}

// additionalMetadata translates the metadata of all namespaces first, since the other entries depend on its
// Pod Security level.
func (t *translation) additionalMetadata(options *v1beta2.NamespaceOptions) {
	const field = "spec.namespaceOptions.additionalMetadata"
	all := options.AdditionalMetadata
	if all != nil && !templated(all) {
		t.metadata(field, all)
	}
	selected := map[int]bool{}
	for i := range options.AdditionalMetadataList {
		entry := &options.AdditionalMetadataList[i]
		selected[i] = entry.NamespaceSelector != nil || templated(&entry.Metadata)
		if !selected[i] {
			t.metadata(fmt.Sprintf("%sList[%d]", field, i), &entry.Metadata)
		}
	}
	if all != nil && templated(all) {
		t.selectedMetadata(field, &v1beta2.SelectedMetadata{Metadata: *all})
	}
	for i := range options.AdditionalMetadataList {
		if selected[i] {
			t.selectedMetadata(fmt.Sprintf("%sList[%d]", field, i), &options.AdditionalMetadataList[i])
		}
	}
}

// metadata translates the labels and annotations of all namespaces of the tenant.
func (t *translation) metadata(field string, m *v1beta2.Metadata) {
	if m == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		t.label(field+".labels["+key+"]", key, t.expand(m.Labels[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		t.annotation(field+".annotations["+key+"]", key, t.expand(m.Annotations[key]))
	}
}

func (t *translation) label(field, key, value string) {
	out := &t.spec.Namespaces
	level := value == "privileged" || value == "baseline" || value == "restricted"
	switch {
	case len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0:
		t.note(Refused, field, "it is not a label; "+onlyVariables)
	case key == podSecurity+"enforce" && level:
		out.PodSecurity = value
	case key == podSecurity+"enforce":
		t.note(Refused, field, "%q is not a level of Pod Security", value)
	case key == podSecurity+"enforce-version":
		t.note(Different, field, "the version is always latest")
	case (key == v1alpha1.LabelCapsuleTenant || key == v1alpha1.LabelFluxTenant) && value == t.tenant.Name:
		out.Labels[key] = value
	case key == v1alpha1.LabelCapsuleTenant || key == corev1.LabelMetadataName:
		t.note(Reported, field, "the label names the tenant or the namespace, and keeps its value")
	case ours(key) || key == v1alpha1.LabelFluxTenant || strings.HasPrefix(key, "kubernetes.io/"):
		t.note(Refused, field, "the label assigns the namespace to a tenant or controls it, so a Tenant cannot set it")
	default:
		out.Labels[key] = value
	}
}

func (t *translation) annotation(field, key, value string) {
	out := &t.spec.Namespaces
	switch other, taken := out.Annotations[key]; {
	case len(validation.IsQualifiedName(key)) > 0:
		t.note(Refused, field, "it is not an annotation")
	case strings.Contains(value, "{{"):
		t.note(Refused, field, onlyVariables)
	case ours(key):
		t.note(Refused, field, "the annotation is Tenure's own")
	case taken && other != value:
		t.note(Refused, field, "the annotation is given twice")
	default:
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[key] = value
	}
}

// ours reports whether a label or annotation belongs to the domain tenure.dev.
func ours(key string) bool { return domain(key, "tenure.dev") }

// domain reports whether a label or annotation belongs to the domain name or a subdomain of
// it.
func domain(key, name string) bool {
	host, _, found := strings.Cut(key, "/")
	return found && (host == name || strings.HasSuffix(host, "."+name))
}

// forbidden translates the labels and annotations that owners must not set.
func (t *translation) forbidden() {
	var options v1beta2.NamespaceOptions
	if t.tenant.Spec.NamespaceOptions != nil {
		options = *t.tenant.Spec.NamespaceOptions
	}
	out := &t.spec.Namespaces.Forbidden
	for _, part := range []struct {
		name       string
		list       *v1beta2.ForbiddenList
		out        *[]v1alpha1.ValuePattern
		expression *v1alpha1.Expression
	}{
		{"labels", options.ForbiddenLabels, &out.Labels, &out.LabelExpression},
		{"annotations", options.ForbiddenAnnotations, &out.Annotations, &out.AnnotationExpression},
	} {
		field := "spec.namespaceOptions.forbidden" + strings.ToUpper(part.name[:1]) + part.name[1:]
		if part.list != nil {
			t.denyNames(part.out, part.list.Denied, field+".denied")
			t.denyMatches(part.out, part.expression, part.list.DeniedRegex, field+".deniedRegex")
		}
		// In v1beta1, annotations held the values of these fields of v1beta2.
		older := forbiddenAnnotation + part.name
		t.denyNames(part.out, list(t.tenant.Annotations[older]), "metadata.annotations["+older+"]")
		t.denyMatches(part.out, part.expression, t.tenant.Annotations[older+"-regexp"], "metadata.annotations["+older+"-regexp]")
		if options.ManagedMetadataOnly {
			*part.out = []v1alpha1.ValuePattern{anything}
		}
		if len(*part.out) > maxPatterns {
			t.note(Refused, field, "these are %d patterns, and at most %d can be kept", len(*part.out), maxPatterns)
		}
	}
}

// denyNames adds names to the forbidden labels or annotations.
func (t *translation) denyNames(out *[]v1alpha1.ValuePattern, denied []string, field string) {
	for i, name := range denied {
		if strings.Contains(name, anything) || !validPattern(name) {
			t.note(Refused, fmt.Sprintf("%s[%d]", field, i), "%q is not the name of a label or an annotation", name)
			continue
		}
		addPattern(out, v1alpha1.ValuePattern(name))
	}
}

// denyMatches adds an expression to the forbidden labels or annotations, as patterns if they are
// equivalent.
func (t *translation) denyMatches(out *[]v1alpha1.ValuePattern, expression *v1alpha1.Expression, regex, field string) {
	if regex == "" {
		return
	}
	patterns, err := Patterns(regex)
	if errors.Is(err, ErrNotPattern) || err == nil && len(*out)+len(patterns) > maxPatterns {
		*expression = t.oneExpression(string(*expression), regex, field)
		return
	}
	if err != nil {
		t.note(Refused, field, "%v", err)
		return
	}
	for _, p := range patterns {
		addPattern(out, p)
	}
}

func addPattern(out *[]v1alpha1.ValuePattern, p v1alpha1.ValuePattern) {
	if !slices.Contains(*out, p) {
		*out = append(*out, p)
	}
}

// required translates the labels and annotations that owners must set.
func (t *translation) required() {
	if t.tenant.Spec.NamespaceOptions == nil || t.tenant.Spec.NamespaceOptions.RequiredMetadata == nil {
		return
	}
	in, out := t.tenant.Spec.NamespaceOptions.RequiredMetadata, &t.spec.Namespaces.Required
	const field = "spec.namespaceOptions.requiredMetadata"
	out.Labels, out.LabelExpressions = t.demand(in.Labels, field+".labels", true)
	out.Annotations, out.AnnotationExpressions = t.demand(in.Annotations, field+".annotations", false)
}

// demand translates required values. The * of a pattern also matches line breaks, as the period of an
// expression does not: only if each value is a single line, a pattern with * replaces an expression.
func (t *translation) demand(in map[string]string, field string, singleLine bool) (map[string]v1alpha1.ValuePattern, map[string]v1alpha1.Expression) {
	if len(in) > maxPatterns {
		t.note(Refused, field, "there are %d, and at most %d can be kept", len(in), maxPatterns)
	}
	var values map[string]v1alpha1.ValuePattern
	var expressions map[string]v1alpha1.Expression
	for _, key := range slices.Sorted(maps.Keys(in)) {
		one := field + "[" + key + "]"
		patterns, err := Patterns(in[key])
		switch {
		case len(validation.IsQualifiedName(key)) > 0:
			t.note(Refused, one, "it is not the name of a label or an annotation")
		case err == nil && len(patterns) == 1 && (singleLine || !strings.Contains(string(patterns[0]), anything)):
			if values == nil {
				values = map[string]v1alpha1.ValuePattern{}
			}
			values[key] = patterns[0]
		case err != nil && !errors.Is(err, ErrNotPattern):
			t.note(Refused, one, "%v", err)
		default:
			if expression := t.oneExpression("", in[key], one); expression != "" {
				if expressions == nil {
					expressions = map[string]v1alpha1.Expression{}
				}
				expressions[key] = expression
			}
		}
	}
	return values, expressions
}

const (
	// capsuleDomain is the domain of Capsule's labels and annotations.
	capsuleDomain = "capsule.clastix.io"
	// These annotations and the label of v1beta1 became fields in v1beta2.
	forbiddenAnnotation = "capsule.clastix.io/forbidden-namespace-"
	protectedAnnotation = "capsule.clastix.io/protected"
	wildcardAnnotation  = "capsule.clastix.io/deny-wildcard"
	cordon              = "capsule.clastix.io/cordon"
)

// annotations translates the annotations of v1beta1 that became fields in v1beta2. Unknown annotations of
// Capsule are Unenforced, since they may restrict the tenant.
func (t *translation) annotations() {
	t.spec.Cordoned = t.tenant.Labels[cordon] == "enabled"
	for _, key := range slices.Sorted(maps.Keys(t.tenant.Annotations)) {
		field := "metadata.annotations[" + key + "]"
		index, roles := strings.CutPrefix(key, rolesAnnotation+"/")
		switch {
		case !domain(key, capsuleDomain):
		case key == protectedAnnotation:
			t.spec.Protected = true
		case key == cordon:
			off, err := strconv.ParseBool(t.tenant.Annotations[key])
			t.spec.Cordoned = t.spec.Cordoned || err != nil || off
		case roles && t.ownersIndex(index):
		case strings.HasPrefix(key, forbiddenAnnotation) && slices.Contains([]string{"labels", "labels-regexp", "annotations", "annotations-regexp"}, key[len(forbiddenAnnotation):]):
		case key == wildcardAnnotation:
			// The translation of ingress options reads this annotation.
		case strings.HasPrefix(key, quotaAnnotation+"/"):
			t.customQuota(field, key)
		case strings.HasPrefix(key, usedAnnotation+"/"):
			// The manager writes this annotation.
		default:
			t.note(Unenforced, field, "the annotation is not understood")
		}
	}
}

package capsule

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// tenantVariable and namespaceVariable are the variables in Capsule's templates for the names of the tenant
// and of the namespace.
var (
	tenantVariable    = regexp.MustCompile(`\{\{ *tenant[.]name *\}\}`)
	namespaceVariable = regexp.MustCompile(`\{\{ *namespace *\}\}`)
)

// expand returns a metadata value in which the name of the tenant replaces its variable.
func (t *translation) expand(value string) string {
	return tenantVariable.ReplaceAllLiteralString(value, t.tenant.Name)
}

// templated reports whether a value depends on the namespace.
func templated(m *v1beta2.Metadata) bool {
	for _, values := range []map[string]string{m.Labels, m.Annotations} {
		for _, value := range values {
			if namespaceVariable.MatchString(value) {
				return true
			}
		}
	}
	return false
}

// selectedMetadata translates labels and annotations that apply to some of the namespaces, or with values
// that depend on the namespace.
func (t *translation) selectedMetadata(field string, entry *v1beta2.SelectedMetadata) {
	out := v1alpha1.SelectedMetadata{Selector: entry.NamespaceSelector.DeepCopy()}
	if entry.NamespaceSelector != nil {
		if _, err := metav1.LabelSelectorAsSelector(entry.NamespaceSelector); err != nil {
			t.note(Refused, field+".namespaceSelector", "%v", err)
			return
		}
	}
	if len(entry.Labels) > maxMetadata || len(entry.Annotations) > maxMetadata {
		t.note(Refused, field, "at most %d labels and %[1]d annotations can be kept", maxMetadata)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(entry.Labels)) {
		value := namespaceVariable.ReplaceAllLiteralString(t.expand(entry.Labels[key]), "{{ namespace }}")
		if t.selectedLabel(field+".labels["+key+"]", key, value) {
			out.Labels = with(out.Labels, key, value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(entry.Annotations)) {
		one := field + ".annotations[" + key + "]"
		value := namespaceVariable.ReplaceAllLiteralString(t.expand(entry.Annotations[key]), "{{ namespace }}")
		switch {
		case len(validation.IsQualifiedName(key)) > 0:
			t.note(Refused, one, "it is not an annotation")
		case strings.Contains(namespaceVariable.ReplaceAllLiteralString(value, ""), "{{"):
			t.note(Refused, one, onlyVariables)
		case ours(key):
			t.note(Refused, one, "the annotation is Tenure's own")
		default:
			out.Annotations = with(out.Annotations, key, value)
		}
	}
	if len(out.Labels)+len(out.Annotations) > 0 {
		t.spec.Namespaces.Selected = append(t.spec.Namespaces.Selected, out)
	}
}

// onlyVariables is the message about other templates.
const onlyVariables = "of templates only {{ tenant.name }} and {{ namespace }} are understood"

// selectedLabel reports whether a label is accepted, and otherwise adds a note with the reason.
func (t *translation) selectedLabel(field, key, value string) bool {
	switch {
	case len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(namespaceVariable.ReplaceAllLiteralString(value, "x"))) > 0:
		t.note(Refused, field, "it is not a label; "+onlyVariables)
	case key == v1alpha1.LabelCapsuleTenant || key == corev1.LabelMetadataName:
		t.note(Reported, field, "the label names the tenant or the namespace, and keeps its value")
	case key == podSecurity+"enforce" && value == "restricted":
		return true
	case key == podSecurity+"enforce-version":
		t.note(Different, field, "the version is always latest")
	case key == podSecurity+"enforce":
		t.selectedLevel(field, value)
	case ours(key) || key == v1alpha1.LabelFluxTenant || strings.HasPrefix(key, "kubernetes.io/"):
		t.note(Refused, field, "the label assigns the namespace to a tenant or controls it, so a Tenant cannot set it")
	default:
		return true
	}
	return false
}

// levels are the Pod Security levels, the least restrictive first.
var levels = []string{"privileged", "baseline", "restricted"}

// selectedLevel adds a note about a Pod Security level below restricted for some of the namespaces. They
// keep the level of all of the tenant's namespaces, unless that level allows more.
func (t *translation) selectedLevel(field, value string) {
	all := t.spec.Namespaces.PodSecurity
	switch level := slices.Index(levels, value); {
	case level < 0:
		t.note(Refused, field, "%q is not a level of Pod Security", value)
	case level > slices.Index(levels, all):
		t.note(Refused, field, "for some of the namespaces, the Pod Security level can be raised to restricted only; the others have %s", all)
	case value != all:
		t.note(Reported, field, "the selected namespaces keep the Pod Security level %s, since owners may choose the labels that select them: for another level, set it for all namespaces, or exempt the Pods", all)
	}
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// maxMetadataExpression is the maximum length of [v1alpha1.Expression].
const maxMetadataExpression = 256

// oneExpression returns an expression that matches every text that one of two expressions matches; have may
// be empty. It adds a note about an expression that is too long.
func (t *translation) oneExpression(have, regex, field string) v1alpha1.Expression {
	if have != "" && have != regex {
		regex = "(?:" + have + ")|(?:" + regex + ")"
	}
	if len(regex) > maxMetadataExpression {
		t.note(Unenforced, field, "the expression is longer than %d bytes", maxMetadataExpression)
		return v1alpha1.Expression(have)
	}
	return v1alpha1.Expression(regex)
}

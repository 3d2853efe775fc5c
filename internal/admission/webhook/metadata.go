package webhook

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
)

// metadata holds the rules about the labels, or about the annotations, of one namespace.
type metadata struct {
	// kind is label or annotation.
	kind, namespace string
	// entries are the labels or annotations of the namespace, and own those that the Tenant sets.
	entries, own map[string]string
	required     map[string]v1alpha1.ValuePattern
	expressions  map[string]v1alpha1.Expression
	allowed      []v1alpha1.ValuePattern
	forbidden    []v1alpha1.ValuePattern
	expression   v1alpha1.Expression
	// platform are the namespaces of the platform.
	platform []string
	// cordon is set for labels if owners may change [v1alpha1.LabelCapsuleCordoned] of a namespace.
	cordon bool
}

// metadataRules returns the rules about the labels and about the annotations of a namespace.
func metadataRules(s Situation, ns *corev1.Namespace) []metadata {
	spec, listed, platform := s.Tenant.Spec.Namespaces, s.Profile.Spec.NamespaceMetadata, s.Profile.Spec.PlatformNamespaces
	labels, annotations := tenancy.NamespaceMetadata(s.Tenant, ns.Name, ns.Labels)
	return []metadata{
		{
			"label", ns.Name, ns.Labels, labels, spec.Required.Labels, spec.Required.LabelExpressions,
			slices.Concat(listed.Labels, spec.Allowed.Labels), spec.Forbidden.Labels, spec.Forbidden.LabelExpression, platform,
			tenancy.OwnersCordon(s.Tenant, s.Profile),
		},
		{
			"annotation", ns.Name, ns.Annotations, annotations, spec.Required.Annotations, spec.Required.AnnotationExpressions,
			slices.Concat(listed.Annotations, spec.Allowed.Annotations), spec.Forbidden.Annotations, spec.Forbidden.AnnotationExpression, platform,
			false,
		},
	}
}

// choose returns the reason why an owner must not choose a key, or nil.
func (m *metadata) choose(key string) *Refusal {
	if admission.ProtectedKey(key) {
		return refuse("namespace %s must not have the %s %s, which the platform decides on: leave it out", m.namespace, m.kind, key)
	}
	for _, pattern := range m.forbidden {
		if matches(pattern, key) {
			return refuse("namespace %s must not have the %s %s: those that match %s are forbidden", m.namespace, m.kind, key, pattern)
		}
	}
	if m.expression != "" && found(m.expression, key, true) {
		return refuse("namespace %s must not have the %s %s: those that match %s are forbidden", m.namespace, m.kind, key, m.expression)
	}
	if _, asked := m.required[key]; asked {
		return nil
	}
	if _, asked := m.expressions[key]; asked {
		return nil
	}
	if !slices.ContainsFunc(m.allowed, func(p v1alpha1.ValuePattern) bool { return matches(p, key) }) {
		return refuse("namespace %s must not have the %s %s, which is not among those that owners choose: leave it out, or ask the platform team to list it in spec.namespaces.allowed of the Tenant (allowed: %s)",
			m.namespace, m.kind, key, texts(m.allowed))
	}
	if slices.Contains(admission.AppliedBy, key) && slices.Contains(m.platform, m.entries[key]) {
		return refuse("namespace %s must not say in the %s %s that the platform applied it: leave it out", m.namespace, m.kind, key)
	}
	return nil
}

// demand returns a refusal if the value of a key is not the value that the Tenant requires, or nil.
func (m *metadata) demand(key string) *Refusal {
	value, ok := m.entries[key]
	rule, required := string(m.required[key]), false
	var holds bool
	if pattern, asked := m.required[key]; asked {
		required, holds = true, matches(pattern, value)
	} else if expression, asked := m.expressions[key]; asked {
		rule, required, holds = string(expression), true, found(expression, value, false)
	}
	switch {
	case !required:
		return nil
	case !ok:
		return refuse("namespace %s needs the %s %s with a value that matches %s", m.namespace, m.kind, key, rule)
	case !holds:
		return refuse("namespace %s must not have the %s %s with the value %q: it has to match %s", m.namespace, m.kind, key, value, rule)
	}
	return nil
}

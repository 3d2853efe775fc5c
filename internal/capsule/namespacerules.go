package capsule

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// reservedMetadata matches the names of labels and annotations that Capsule reserves for itself.
var reservedMetadata = regexp.MustCompile(v1beta2.ReservedKeys)

// NamespaceRefusal returns the reason why a rule about metadata refuses a new namespace of an owner, or "".
// The policy tenure-capsule-namespaces makes the same decision, after the webhook has reserved the name.
func NamespaceRefusal(tenant *v1beta2.Tenant, ns *corev1.Namespace, user string, groups []string) string {
	// For the custom audiences that contain all owners, the policy checks the right to own the tenant.
	audiences := []v1beta2.RuleAudience{{Name: audienceUsers, Users: []string{user}}, {Name: audienceOwners, Users: []string{user}}}
	var all []namespaceRule
	for i := range tenant.Spec.Rules {
		rule, err := decodeRule(tenant.Spec.Rules[i].Raw)
		if err != nil || rule.Enforce == nil || !speaksTo(rule, audiences, Request{User: user, Groups: groups}) {
			continue
		}
		if rule.NamespaceSelector != nil {
			selector, err := metav1.LabelSelectorAsSelector(rule.NamespaceSelector)
			if err != nil || !selector.Matches(labels.Set(ns.Labels)) {
				continue
			}
		}
		found := namespaceRule{allows: rule.Enforce.Action == actionAllow, audits: rule.Enforce.Action == actionAudit}
		for _, m := range rule.Enforce.Metadata {
			if slices.Contains(m.Kinds, kindNamespace) && ofGroup(m.APIGroups, "", "v1") {
				found.labels, found.annotations = append(found.labels, m.Labels), append(found.annotations, m.Annotations)
			}
		}
		if len(found.labels) > 0 {
			all = append(all, found)
		}
	}
	for _, part := range []struct {
		word   string
		values map[string]string
		of     func(namespaceRule) []map[string]ruleMetadata
	}{
		{"label", ns.Labels, func(r namespaceRule) []map[string]ruleMetadata { return r.labels }},
		{"annotation", ns.Annotations, func(r namespaceRule) []map[string]ruleMetadata { return r.annotations }},
	} {
		if why := missingMetadata(all, part.of, part.word, part.values); why != "" {
			return why
		}
		for _, key := range slices.Sorted(maps.Keys(part.values)) {
			if why := wrongMetadata(all, part.of, part.word, key, part.values[key]); why != "" {
				return why
			}
		}
	}
	return ""
}

// namespaceRule is the part of a rule about the labels and annotations of namespaces.
type namespaceRule struct {
	allows, audits      bool
	labels, annotations []map[string]ruleMetadata
}

// missingMetadata returns the refusal of a namespace without a value for a required name, or "". It skips
// names with a default value, which is set after the webhook, and with a managed value, which the Tenant
// sets.
func missingMetadata(all []namespaceRule, of func(namespaceRule) []map[string]ruleMetadata, word string, values map[string]string) string {
	for _, r := range all {
		for _, entries := range of(r) {
			for _, name := range slices.Sorted(maps.Keys(entries)) {
				has := func(key string) bool { return star(name, key) }
				if r.allows && entries[name].Required && entries[name].Default == nil && entries[name].Managed == nil && !reservedMetadata.MatchString(name) && !slices.ContainsFunc(slices.Collect(maps.Keys(values)), has) {
					return fmt.Sprintf("metadata %[1]s %[2]q is required at metadata.%[1]ss[%[2]q]", word, name)
				}
			}
		}
	}
	return ""
}

// wrongMetadata returns the refusal of a value that a rule denies or that no list of allowed values
// contains, or "". The last rule that matches decides.
func wrongMetadata(all []namespaceRule, of func(namespaceRule) []map[string]ruleMetadata, word, key, value string) string {
	if reservedMetadata.MatchString(key) || isManaged(all, of, key, value) {
		return ""
	}
	listed, hit, denied := false, false, false
	for _, r := range all {
		if r.audits {
			continue
		}
		entries := entriesFor(r, of(r), key)
		listed = listed || r.allows && len(entries) > 0
		if slices.ContainsFunc(entries, func(e ruleExpression) bool { return (value != "" || !e.Negate) && e.matches(value) }) {
			hit, denied = true, !r.allows
		}
	}
	where := fmt.Sprintf("metadata %[1]s %[3]q at metadata.%[1]ss[%[2]q]", word, key, value)
	switch {
	case denied:
		return where + " is denied by namespace rule"
	case !hit && listed && value != "":
		return where + " is not allowed by namespace rule: value did not match any allowed rule"
	}
	return ""
}

// isManaged reports whether the last rule that manages a name gives it the value.
func isManaged(all []namespaceRule, of func(namespaceRule) []map[string]ruleMetadata, key, value string) bool {
	var last *string
	for _, r := range all {
		for _, entries := range of(r) {
			if m := entries[key].Managed; m != nil {
				last = m
			}
		}
	}
	return last != nil && *last == value
}

// entriesFor returns the entries of a rule for a name. A rule that denies a name and has no values for it
// denies every value, unless it has a default or a managed value.
func entriesFor(r namespaceRule, all []map[string]ruleMetadata, key string) []ruleExpression {
	var found []ruleExpression
	for _, entries := range all {
		for name, entry := range entries {
			if !star(name, key) {
				continue
			}
			if len(entry.Values) == 0 && entry.Default == nil && entry.Managed == nil && !r.allows {
				found = append(found, ruleExpression{Exp: ".*"})
			}
			found = append(found, entry.Values...)
		}
	}
	return found
}

package capsule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"k8s.io/apimachinery/pkg/util/validation"
)

// unmanagedKinds are the kinds that the webhook for rules does not receive: the manager may not read
// Secrets, and the other kinds are frequent, or the manager writes them. The policy tenure-capsule-managed
// excludes them, too.
var unmanagedKinds = []string{"Secret", "Event", "Lease", "Endpoints", "EndpointSlice", "RuleStatus", "TenantParameters"}

// managedEntry is a label or annotation that a rule manages.
type managedEntry struct {
	rule *tenantRule
	of   *metadataRule
	// part is labels or annotations.
	part, key, value string
}

// managedMetadata checks the managed labels and annotations of a metadata rule, and translates those for
// namespaces: the manager sets them on existing namespaces, and the webhook for namespaces on new ones.
func (t *translation) managedMetadata(field string, rule *tenantRule, m *metadataRule) {
	labels, annotations := managed(m.Labels), managed(m.Annotations)
	if len(labels)+len(annotations) == 0 {
		return
	}
	for _, part := range []struct {
		name   string
		values map[string]string
	}{{"labels", labels}, {"annotations", annotations}} {
		for _, key := range slices.Sorted(maps.Keys(part.values)) {
			value, at := part.values[key], field+"."+part.name+"["+key+"].managed"
			switch problems := validation.IsValidLabelValue(value); {
			case len(validation.IsQualifiedName(key)) > 0:
				t.note(Refused, at, "%q is no name of a label or annotation, and an expression cannot be set: name each key", key)
			case reservedMetadata.MatchString(key) || ours(key):
				t.note(Refused, at, "Capsule and Tenure keep this name for themselves: use another one")
			case part.name == "labels" && !isTemplate(value) && len(problems) > 0:
				t.note(Refused, at, "%q cannot be the value of a label: %s", value, problems[0])
			}
			for _, kind := range unmanagedKinds {
				if slices.Contains(m.Kinds, kind) {
					t.unenforced(at, "the webhook that sets it is not called for objects of the kind "+kind)
				} else if kind == "Secret" && m.covers("", "v1", kind) {
					t.note(Reported, at, "it is not set in Secrets, which the manager may not read")
				}
			}
		}
	}
	if !slices.Contains(m.Kinds, kindNamespace) || !ofGroup(m.APIGroups, "", "v1") {
		return
	}
	content, err := json.Marshal(m)
	switch {
	case err != nil || isTemplate(string(content)):
		// ruleMetadata adds the note.
	case len(rule.Audience) > 0:
		t.unenforced(field, "managed metadata of namespaces does not depend on the user who creates the namespace: leave out the audience")
	case len(t.spec.Namespaces.Selected) >= maxSelected:
		t.note(Refused, field, "with spec.namespaceOptions.additionalMetadataList, at most %d entries for some of the namespaces can be kept", maxSelected)
	default:
		t.selectedMetadata(field, &v1beta2.SelectedMetadata{NamespaceSelector: rule.NamespaceSelector, Metadata: v1beta2.Metadata{Labels: labels, Annotations: annotations}})
	}
}

// managedTwice refuses two rules that give the same label or annotation of an object different values, in
// the same namespaces and for the same users. Of rules for different namespaces or users, the last one
// decides.
func (t *translation) managedTwice() {
	var before []managedEntry
	for i := range t.tenant.Spec.Rules {
		rule, err := decodeRule(t.tenant.Spec.Rules[i].Raw)
		if err != nil || rule.Enforce == nil {
			continue
		}
		for j := range rule.Enforce.Metadata {
			m := &rule.Enforce.Metadata[j]
			for _, part := range []string{"labels", "annotations"} {
				values := managed(map[string]map[string]ruleMetadata{"labels": m.Labels, "annotations": m.Annotations}[part])
				for _, key := range slices.Sorted(maps.Keys(values)) {
					entry := managedEntry{rule: rule, of: m, part: part, key: key, value: values[key]}
					if other := slices.IndexFunc(before, entry.contradicts); other >= 0 {
						t.note(Refused, fmt.Sprintf("spec.rules[%d].enforce.metadata[%d].%s[%s].managed", i, j, part, key),
							"another rule for the same namespaces and users manages it with the value %q: give both rules one value, or remove one of them", before[other].value)
					}
					before = append(before, entry)
				}
			}
		}
	}
}

func (e managedEntry) contradicts(other managedEntry) bool {
	return e.part == other.part && e.key == other.key && e.value != other.value &&
		reflect.DeepEqual(e.rule.NamespaceSelector, other.rule.NamespaceSelector) && reflect.DeepEqual(e.rule.Audience, other.rule.Audience) &&
		overlap(e.of.Kinds, other.of.Kinds, star) && overlap(groupsOf(e.of), groupsOf(other.of), coversGroup)
}

// overlap reports whether an entry of one list covers an entry of the other list.
func overlap(one, other []string, covers func(string, string) bool) bool {
	return slices.ContainsFunc(one, func(a string) bool {
		return slices.ContainsFunc(other, func(b string) bool { return covers(a, b) || covers(b, a) })
	})
}

func groupsOf(m *metadataRule) []string {
	if len(m.APIGroups) == 0 {
		return []string{""}
	}
	return m.APIGroups
}

// coversGroup reports whether a group of a rule, which may have a version, contains another group.
func coversGroup(one, other string) bool {
	if one == "*" {
		return true
	}
	group, version, _ := strings.Cut(other, "/")
	if other == "v1" {
		group, version = "", "v1"
	}
	return ofGroup([]string{one}, group, cmp.Or(version, "*"))
}

// managed returns the managed values of labels or annotations.
func managed(rules map[string]ruleMetadata) map[string]string {
	values := map[string]string{}
	for key, m := range rules {
		if m.Managed != nil {
			values[key] = *m.Managed
		}
	}
	return values
}

// SetMetadata gives an object the managed labels and annotations of the rules. A new object also gets the
// default labels and annotations that it does not have. The last rule wins. SetMetadata reports whether it
// changed the object.
func SetMetadata(status *v1beta2.RuleStatusStatus, r Request) bool {
	var setLabels, setAnnotations metadataValues
	group, version, kind := r.Object.GroupVersionKind().Group, r.Object.GroupVersionKind().Version, r.Object.GetKind()
	for i := range status.Rules {
		rule := &tenantRule{}
		if json.Unmarshal(status.Rules[i].Raw, rule) != nil || rule.Enforce == nil || !speaksTo(rule, status.Audiences, r) {
			continue
		}
		for _, m := range rule.Enforce.Metadata {
			if m.covers(group, version, kind) {
				setLabels.add(m.Labels)
				setAnnotations.add(m.Annotations)
			}
		}
	}
	isNew := r.Old == nil
	maps.DeleteFunc(setLabels.defaults, func(_, value string) bool { return len(validation.IsValidLabelValue(value)) > 0 })
	labels, changedLabels := setLabels.applied(r.Object.GetLabels(), isNew)
	annotations, changedAnnotations := setAnnotations.applied(r.Object.GetAnnotations(), isNew)
	if changedLabels {
		r.Object.SetLabels(labels)
	}
	if changedAnnotations {
		r.Object.SetAnnotations(annotations)
	}
	return changedLabels || changedAnnotations
}

// metadataValues are the values that rules set in labels, or in annotations.
type metadataValues struct{ defaults, managed map[string]string }

func (v *metadataValues) add(rules map[string]ruleMetadata) {
	if v.defaults == nil {
		v.defaults, v.managed = map[string]string{}, map[string]string{}
	}
	maps.Copy(v.defaults, defaults(rules))
	maps.Copy(v.managed, managed(rules))
}

// applied returns the labels or annotations of an object with the values, and reports whether they changed.
func (v *metadataValues) applied(have map[string]string, isNew bool) (map[string]string, bool) {
	out := map[string]string{}
	if isNew {
		maps.Copy(out, v.defaults)
	}
	maps.Copy(out, have)
	maps.Copy(out, v.managed)
	return out, !maps.Equal(out, have)
}

// checkManaged checks the values of labels that templates became. The API server would refuse every
// object if a value could not be the value of a label.
func checkManaged(enforce any) error {
	content, err := json.Marshal(enforce)
	if err != nil {
		return err
	}
	e := &ruleEnforcement{}
	if err := json.Unmarshal(content, e); err != nil {
		return err
	}
	for _, m := range e.Metadata {
		values := managed(m.Labels)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if problems := validation.IsValidLabelValue(values[key]); len(problems) > 0 {
				return fmt.Errorf("the managed label %s cannot have the value %q: %s", key, values[key], problems[0])
			}
		}
	}
	return nil
}

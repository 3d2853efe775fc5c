package tenancy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// restricted is the strictest Pod Security level.
const restricted = "restricted"

// NamespaceMetadata returns the labels and annotations that the Tenant gives one of its namespaces:
// those of [Metadata], and those of the entries of spec.namespaces.selected that select the
// namespace. have are the labels that the selectors read.
func NamespaceMetadata(t *v1alpha1.Tenant, name string, have map[string]string) (labels, annotations map[string]string) {
	labels, annotations, _ = Metadata(t)
	more, moreAnnotations := SelectedMetadata(t, name, have)
	if level, ok := more[labelPodSecurity]; ok {
		labels[labelPodSecurity] = level
	}
	addMissing(labels, more)
	addMissing(annotations, moreAnnotations)
	return labels, annotations
}

// SelectedMetadata returns the labels and annotations of spec.namespaces.selected for a
// namespace. It leaves out what no namespace can have: see [Metadata].
func SelectedMetadata(t *v1alpha1.Tenant, name string, have map[string]string) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	for i := range t.Spec.Namespaces.Selected {
		entry := &t.Spec.Namespaces.Selected[i]
		if !selects(entry.Selector, have) {
			continue
		}
		values := selectedValues(t.Name, name)
		for key, value := range entry.Labels {
			if value = values.Replace(value); wrongSelectedLabel(key, value) == "" {
				addMissing(labels, map[string]string{key: value})
			}
		}
		for key, value := range entry.Annotations {
			if wrongSelectedAnnotation(key) == "" {
				addMissing(annotations, map[string]string{key: values.Replace(value)})
			}
		}
	}
	return labels, annotations
}

// UnsetSelected returns an error that names the first label of spec.namespaces.selected that a namespace
// cannot have because the value is wrong with the name of the namespace or of the Tenant in it, or nil.
// [SelectedMetadata] leaves it out. [Metadata] reports the labels that no namespace can have.
func UnsetSelected(t *v1alpha1.Tenant, name string, have map[string]string) error {
	if t == nil {
		return nil
	}
	set := maps.Clone(t.Spec.Namespaces.Labels)
	for i := range t.Spec.Namespaces.Selected {
		entry := &t.Spec.Namespaces.Selected[i]
		if !selects(entry.Selector, have) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(entry.Labels)) {
			value := selectedValues(t.Name, name).Replace(entry.Labels[key])
			if _, there := set[key]; there || wrongSelectedLabel(key, selectedValues("x", "x").Replace(entry.Labels[key])) != "" {
				continue
			}
			set = added(set, key, value)
			if wrong := wrongSelectedLabel(key, value); wrong != "" {
				return fmt.Errorf("label %s of spec.namespaces.selected[%d] cannot be %s: %s", key, i, value, wrong)
			}
		}
	}
	return nil
}

// selectedValues replaces the variables in the values of spec.namespaces.selected.
func selectedValues(tenant, namespace string) *strings.Replacer {
	return strings.NewReplacer("{{ tenant.name }}", tenant, "{{tenant.name}}", tenant, "{{ namespace }}", namespace, "{{namespace}}", namespace)
}

func addMissing(to, from map[string]string) {
	for key, value := range from {
		if _, ok := to[key]; !ok {
			to[key] = value
		}
	}
}

// selects reports whether a selector matches labels. An invalid selector matches nothing.
func selects(selector *metav1.LabelSelector, have map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(have))
}

// checkSelected returns the mistakes in spec.namespaces.selected.
func checkSelected(t *v1alpha1.Tenant) error {
	var problems []error
	values := selectedValues("x", "x")
	for i := range t.Spec.Namespaces.Selected {
		entry := &t.Spec.Namespaces.Selected[i]
		if entry.Selector != nil {
			if _, err := metav1.LabelSelectorAsSelector(entry.Selector); err != nil {
				problems = append(problems, fmt.Errorf("the selector of spec.namespaces.selected[%d] selects nothing: %w", i, err))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(entry.Labels)) {
			if wrong := wrongSelectedLabel(key, values.Replace(entry.Labels[key])); wrong != "" {
				problems = append(problems, fmt.Errorf("label %s of spec.namespaces.selected[%d] cannot be set: %s", key, i, wrong))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(entry.Annotations)) {
			if wrong := wrongSelectedAnnotation(key); wrong != "" {
				problems = append(problems, fmt.Errorf("annotation %s of spec.namespaces.selected[%d] cannot be set: %s", key, i, wrong))
			}
		}
	}
	return errors.Join(problems...)
}

func wrongSelectedLabel(key, value string) string {
	wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
	switch {
	case key == labelPodSecurity && value == restricted:
	case strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/"), key == labelPodSecurity, key == labelPodSecurityVersion, key == corev1.LabelMetadataName:
		wrong = append(wrong, "it assigns the namespace to a tenant or controls it")
	}
	return strings.Join(wrong, "; ")
}

func wrongSelectedAnnotation(key string) string {
	wrong := validation.IsQualifiedName(strings.ToLower(key))
	if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
		wrong = append(wrong, "it has to be a name that is not tenure.dev's")
	}
	return strings.Join(wrong, "; ")
}

package catalog

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// FuzzLabelChanges applies the changes of labels to a namespace: a change to leave takes it out of the
// selector, and the changes to join take it in.
func FuzzLabelChanges(f *testing.F) {
	for _, selector := range []string{"a=b", "a", "!a", "a notin (b)", "a in (b, c),d", "!b,a!=c", "kubernetes.io/metadata.name=x"} {
		f.Add(selector, "a", "b")
		f.Add(selector, "b", "")
	}
	f.Fuzz(func(t *testing.T, text, key, value string) {
		selector, err := metav1.ParseToLabelSelector(text)
		if err != nil {
			return
		}
		matching, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return
		}
		current := labels.Set{key: value, corev1.LabelMetadataName: "team"}
		after := func(changes ...labelChange) labels.Set {
			set := labels.Merge(current, nil)
			for _, c := range changes {
				delete(set, c.key)
				if c.value != nil {
					set[c.key] = *c.value
				}
			}
			return set
		}
		for _, change := range changesToLeave(selector, current) {
			if set := after(change...); !matching.Matches(current) || matching.Matches(set) || set[corev1.LabelMetadataName] != "team" {
				t.Errorf("%q, %v: %s does not leave it", text, current, patchOf(change))
			}
		}
		for _, changes := range changesToJoin(selector, current) {
			if set := after(changes...); matching.Matches(current) || !matching.Matches(set) || set[corev1.LabelMetadataName] != "team" {
				t.Errorf("%q, %v: %s does not join it", text, current, patchOf(changes))
			}
		}
	})
}

package capsule

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxObjectMetadata is the maximum number of labels, and of annotations, in
// [v1alpha1.ObjectMetadata].
const maxObjectMetadata = 32

// byDefaults is the message about fields that a policy sets, which not every cluster has.
const byDefaults = "the policy tenure-defaults fills it in, on Kubernetes 1.36, if it is installed (tenure profile multi-tenant --defaults)"

// objectMetadata translates the labels and annotations of all objects of a kind.
func (t *translation) objectMetadata(field string, m *v1beta2.Metadata) *v1alpha1.ObjectMetadata {
	if m == nil || len(m.Labels)+len(m.Annotations) == 0 {
		return nil
	}
	if len(m.Labels) > maxObjectMetadata || len(m.Annotations) > maxObjectMetadata {
		t.note(Refused, field, "at most %d labels and %[1]d annotations can be kept", maxObjectMetadata)
	}
	t.note(Different, field, byDefaults)
	out := &v1alpha1.ObjectMetadata{}
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(m.Labels[key])) > 0 || ours(key) {
			t.note(Refused, field+".labels["+key+"]", "it is not a label, or it is Tenure's own; templates are not understood")
			continue
		}
		if out.Labels == nil {
			out.Labels = map[string]v1alpha1.LabelValue{}
		}
		out.Labels[key] = v1alpha1.LabelValue(m.Labels[key])
	}
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		if len(validation.IsQualifiedName(key)) > 0 || ours(key) {
			t.note(Refused, field+".annotations["+key+"]", "it is not an annotation, or it is Tenure's own")
			continue
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[key] = m.Annotations[key]
	}
	return out
}

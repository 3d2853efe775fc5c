package flux

import (
	"context"

	"github.com/fluxcd/pkg/apis/meta"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// generatorKind is the kind of source-watcher, whose objects no other kind of Flux waits for: what needs
// their ExternalArtifacts says only that these do not exist.
var generatorKind = schema.GroupVersionKind{Group: "source.extensions.fluxcd.io", Version: "v1beta1", Kind: "ArtifactGenerator"}

// FailedGenerators returns the ArtifactGenerators that say they failed, with their messages. A cluster
// without the kind has none.
func FailedGenerators(ctx context.Context, c client.Reader) []Finding {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(generatorKind)
	if c.List(ctx, list) != nil {
		return nil // the kind is not there
	}
	var failed []Finding
	for _, u := range list.Items {
		var object struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &object) != nil {
			continue
		}
		ready := apimeta.FindStatusCondition(object.Status.Conditions, meta.ReadyCondition)
		if ready == nil || ready.Status != metav1.ConditionFalse {
			continue
		}
		row := Row{Kind: Kind(generatorKind.Kind), Namespace: u.GetNamespace(), Name: u.GetName(), Ready: string(ready.Status), Message: ready.Message, State: Failed}
		failed = append(failed, Finding{Row: row, Reason: ready.Message})
	}
	return failed
}

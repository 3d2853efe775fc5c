package sourcegrant

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/internal/manager/trim"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/grants"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// labelFrom is the label of an ExternalArtifact with the namespace that granted it.
const labelFrom = "tenure.dev/granted-from"

// Flux's objects are read as unstructured objects, since a few fields are enough.
var (
	sourceGroup  = schema.GroupVersion{Group: "source.toolkit.fluxcd.io", Version: "v1"}
	artifactKind = sourceGroup.WithKind("ExternalArtifact")
	sourceKinds  = []string{"Bucket", "GitRepository", "HelmChart", "OCIRepository"}
)

// consumerKinds are the kinds that refer to a source, with the fields of the reference.
var consumerKinds = []struct {
	kind  schema.GroupVersionKind
	field string
}{
	{schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}, "sourceRef"},
	{schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}, "chartRef"},
}

func object(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

func list(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return l
}

// Trim drops the fields of a source or an ExternalArtifact that this package does not read, so
// that a cache of all of them stays small. It does not change other objects. It returns an error if a field cannot be
// set in the new object.
func Trim(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok || u.GroupVersionKind() != artifactKind && (u.GroupVersionKind().GroupVersion() != sourceGroup || !slices.Contains(sourceKinds, u.GetKind())) {
		return o, nil
	}
	return trim.Keep(u,
		"metadata.namespace",
		"metadata.name",
		"metadata.uid",
		"metadata.resourceVersion",
		"metadata.deletionTimestamp",
		"metadata.labels",
		"status.artifact",
		"status.conditions",
	)
}

// sourceOf returns the properties of a source that the plan needs.
func sourceOf(u *unstructured.Unstructured) grants.Source {
	source := grants.Source{Kind: u.GetKind(), Name: u.GetName()}
	if artifact, ok, _ := unstructured.NestedMap(u.Object, "status", "artifact"); ok {
		source.Artifact = grants.Artifact(artifact)
	}
	return source
}

// copyFrom reports whether the manager made an ExternalArtifact for a grant of a namespace.
func copyFrom(u *unstructured.Unstructured, owner string) bool {
	return u.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue && u.GetLabels()[labelFrom] == owner
}

// copyOf returns the ExternalArtifact of a copy, without its status. Only its name identifies
// the source: the consumer does not learn more about the source.
func copyOf(owner string, c grants.Copy) *unstructured.Unstructured {
	u := object(artifactKind)
	u.SetNamespace(c.Namespace)
	u.SetName(c.Name)
	u.SetLabels(map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, labelFrom: owner})
	u.Object["spec"] = map[string]any{}
	return u
}

// statusOf returns the copy with its status, for the copy that was read and not for a new
// object with its name. The same artifact gives the same status, so that a second write
// changes nothing.
func statusOf(owner string, c grants.Copy, uid types.UID, now time.Time) *unstructured.Unstructured {
	if updated, ok := c.Source.Artifact["lastUpdateTime"].(string); ok {
		if at, err := time.Parse(time.RFC3339, updated); err == nil {
			now = at
		}
	}
	u := object(artifactKind)
	u.SetNamespace(c.Namespace)
	u.SetName(c.Name)
	u.SetUID(uid)
	u.Object["status"] = map[string]any{
		"artifact":   c.Source.Artifact,
		"conditions": []any{condition("True", grants.ReasonGranted, fmt.Sprintf("follows a source of namespace %s by its grant", owner), now)},
	}
	return u
}

// endedStatus returns a copy's status without the artifact, for a grant that has ended.
func endedStatus(u *unstructured.Unstructured, now time.Time) *unstructured.Unstructured {
	ended := object(artifactKind)
	ended.SetNamespace(u.GetNamespace())
	ended.SetName(u.GetName())
	ended.SetUID(u.GetUID())
	ended.Object["status"] = map[string]any{
		"conditions": []any{condition("False", reasonEnded, "the grant has ended, or the source is gone", now)},
	}
	return ended
}

func condition(status, reason, message string, now time.Time) map[string]any {
	return map[string]any{
		"type": conditionReady, "status": status, "reason": reason, "message": message,
		"lastTransitionTime": now.UTC().Format(time.RFC3339),
	}
}

// upToDate reports whether a copy has the artifact of its source.
func upToDate(u *unstructured.Unstructured, c grants.Copy) bool {
	have, _, _ := unstructured.NestedMap(u.Object, "status", "artifact")
	if len(have) != len(c.Source.Artifact) {
		return false
	}
	for field, value := range c.Source.Artifact {
		if fmt.Sprint(have[field]) != fmt.Sprint(value) {
			return false
		}
	}
	return true
}

// uses reports whether a Kustomization or HelmRelease refers to an ExternalArtifact
// of its own namespace.
func uses(u *unstructured.Unstructured, field, name string) bool {
	reference, _, _ := unstructured.NestedMap(u.Object, "spec", field)
	namespace, _ := reference["namespace"].(string)
	return reference["kind"] == artifactKind.Kind && reference["name"] == name &&
		(namespace == "" || namespace == u.GetNamespace())
}

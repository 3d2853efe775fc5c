package catalog

import (
	"context"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// appliedUnhealthy reports whether a Kustomization that is not ready has applied all objects of its source,
// and only some of them are not healthy. The health of a Deployment gives a tenant no rights. An object of
// a kind that is neither Kubernetes' nor Flux's may create namespaces and bindings through its controller,
// such as a Tenant, so it must be ready. Flux objects are judged separately, see [unreadyOf].
//
// It returns false if the cluster does not answer.
func appliedUnhealthy(ctx context.Context, admin client.Reader, u *unstructured.Unstructured) bool {
	attempted, _, _ := unstructured.NestedString(u.Object, "status", "lastAttemptedRevision")
	if refOf(u).Kind != flux.Kustomization || !checksHealth(u) || attempted == "" || attempted != sourceRevision(ctx, admin, u) {
		return false
	}
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "inventory", "entries")
	for _, entry := range entries {
		o := inventoried(entry)
		if o == nil || admin.Get(ctx, keyOf(o), o) != nil || o.GetDeletionTimestamp() != nil {
			return false
		}
		if a, final := readyCondition(o); ofController(o) && a.ready != "" && (a.ready != "True" || !final) {
			return false
		}
	}
	return len(entries) > 0
}

// healthCheckFailed is the reason of the condition Ready of a Kustomization with failed health checks.
// runningHealthChecks is the beginning of the message of its condition Reconciling while they run
// (kustomize-controller v1.9, checkHealth). In both states, all objects are applied.
const (
	healthCheckFailed   = "HealthCheckFailed"
	runningHealthChecks = "Running health checks"
)

// checksHealth reports whether a Kustomization waits for the health of the objects of its current
// generation, or gave up on it.
func checksHealth(u *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		message, _ := condition["message"].(string)
		failed := condition["type"] == "Ready" && condition["reason"] == healthCheckFailed
		runs := condition["type"] == "Reconciling" && strings.HasPrefix(message, runningHealthChecks) && condition["reason"] == "Progressing"
		return (failed || runs) && condition["observedGeneration"] == u.GetGeneration()
	})
}

// sourceRevision returns the revision of the artifact that the source of a Kustomization offers.
func sourceRevision(ctx context.Context, admin client.Reader, u *unstructured.Unstructured) string {
	ref := sourceOf(u, "spec", "sourceRef")
	source := object(ref.Kind.GroupVersionKind().GroupVersion().String(), string(ref.Kind), ref.Namespace, ref.Name, nil)
	if admin.Get(ctx, keyOf(source), source) != nil {
		return ""
	}
	revision, _, _ := unstructured.NestedString(source.Object, "status", "artifact", "revision")
	return revision
}

// inventoried returns the object that an entry of an inventory of Flux names, or nil. The id is
// NAMESPACE_NAME_GROUP_KIND; two underscores stand for a colon in a name.
func inventoried(entry any) *unstructured.Unstructured {
	fields, _ := entry.(map[string]any)
	id, _ := fields["id"].(string)
	version, _ := fields["v"].(string)
	parts := strings.Split(id, "_")
	if len(parts) < 4 || version == "" {
		return nil
	}
	last := len(parts) - 1
	name := strings.ReplaceAll(strings.Join(parts[1:last-1], "_"), "__", ":")
	return object(schema.GroupVersion{Group: parts[last-1], Version: version}.String(), parts[last], parts[0], name, nil)
}

// ofController reports whether the kind of an object is neither Kubernetes' nor Flux's.
func ofController(o *unstructured.Unstructured) bool {
	group := o.GroupVersionKind().Group
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".fluxcd.io")
}

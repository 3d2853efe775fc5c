// Package reconcileretry requests reconciliations from Flux before an object's next
// interval. [Request] does so for one object; [Reconciler] does so for objects that failed
// because of missing rights, once the manager or the fleet has given these rights.
package reconcileretry

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotation requests a reconciliation of an object from Flux. Flux copies its value into
// status.lastHandledReconcileAt after the reconciliation.
const Annotation = "reconcile.fluxcd.io/requestedAt"

// fieldManager is the manager's field manager.
const fieldManager = "tenure-manager"

// Request requests a reconciliation of an object from Flux and does not wait for it. It
// returns an error if the API server refuses the annotation, but not if the object no longer
// exists.
func Request(ctx context.Context, c client.Writer, object *unstructured.Unstructured, now time.Time) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, Annotation, now.UTC().Format(time.RFC3339Nano))
	err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot request a retry of %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

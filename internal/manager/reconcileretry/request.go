// Package reconcileretry asks Flux to reconcile objects now instead of at their next interval:
// by [Request], and by [Reconciler] those that failed for want of rights that the
// manager or the fleet has given a moment ago.
package reconcileretry

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotation is what asks Flux to reconcile an object. Flux repeats its value in
// status.lastHandledReconcileAt when it has done so.
const Annotation = "reconcile.fluxcd.io/requestedAt"

// fieldManager is the name under which the manager writes.
const fieldManager = "tenure-manager"

// Request asks Flux to reconcile an object now, and does not wait. One that is gone
// needs no asking.
func Request(ctx context.Context, c client.Writer, object *unstructured.Unstructured, now time.Time) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, Annotation, now.UTC().Format(time.RFC3339Nano))
	err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot ask %s %s/%s to look: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

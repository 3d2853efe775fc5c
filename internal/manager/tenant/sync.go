package tenant

import (
	"context"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// syncs reads the status that Flux reports for the Tenant's repositories.
func (r *Reconciler) syncs(ctx context.Context, f *reconcileState) error {
	for i := range f.tenant.Spec.Sync {
		s := &f.tenant.Spec.Sync[i]
		at := client.ObjectKey{Namespace: tenancy.SyncNamespace(f.tenant, s), Name: s.Name}
		if !f.has(at.Namespace) {
			f.syncAwaited = append(f.syncAwaited, fmt.Sprintf("namespace %s of spec.sync[%d], which the tenant does not have: list it in spec.namespaces.create, or choose another namespace", at.Namespace, i))
			continue
		}
		source := tenancy.GitRepositoryKind
		if s.OCI != nil {
			source = tenancy.OCIRepositoryKind
		}
		// The failure of the source is the cause of the Kustomization's.
		for _, kind := range []schema.GroupVersionKind{source, tenancy.KustomizationKind} {
			state, message, err := r.readiness(ctx, kind, at)
			if err != nil {
				return err
			}
			if state == metav1.ConditionTrue {
				continue
			}
			if state == metav1.ConditionFalse {
				f.syncFailed = append(f.syncFailed, fmt.Sprintf("%s %s/%s: %s", kind.Kind, at.Namespace, at.Name, message))
			} else {
				f.syncAwaited = append(f.syncAwaited, fmt.Sprintf("%s %s/%s", kind.Kind, at.Namespace, at.Name))
			}
			break
		}
	}
	return nil
}

// readiness returns the condition Ready of an object of Flux, or Unknown if the object does not
// exist.
func (r *Reconciler) readiness(ctx context.Context, kind schema.GroupVersionKind, at client.ObjectKey) (metav1.ConditionStatus, string, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	err := r.Client.Get(ctx, at, u)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return metav1.ConditionUnknown, "", nil
	case err != nil:
		return "", "", fmt.Errorf("cannot read %s %s: %w", kind.Kind, at, err)
	}
	state, message := readyCondition(u)
	return state, message, nil
}

// readyCondition returns status and message of the condition Ready of a Flux object; the
// status is Unknown if the object has no such condition.
func readyCondition(u *unstructured.Unstructured) (metav1.ConditionStatus, string) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			state, _ := c["status"].(string)
			message, _ := c["message"].(string)
			return metav1.ConditionStatus(state), message
		}
	}
	return metav1.ConditionUnknown, ""
}

// synced returns the condition Synced of a Tenant with repositories.
func (f *reconcileState) synced() metav1.Condition {
	c := metav1.Condition{
		Type: ConditionSynced, ObservedGeneration: f.tenant.Generation,
		Status: metav1.ConditionTrue, Reason: ReasonDelivered, Message: "Flux has applied the tenant's repositories",
	}
	switch {
	case len(f.syncFailed) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonFailed, strings.Join(f.syncFailed, "; ")
		c.Message = short(c.Message)
	case len(f.syncAwaited) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonProgressing, short("waiting for "+strings.Join(f.syncAwaited, ", "))
	}
	return c
}

// syncChanged is a predicate for changes of Flux's objects that change the condition Synced.
var syncChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*unstructured.Unstructured)
		after, ok2 := e.ObjectNew.(*unstructured.Unstructured)
		if !ok1 || !ok2 || after.GetLabels()[v1alpha1.LabelFluxTenant] == "" {
			return false
		}
		state, message := readyCondition(before)
		now, said := readyCondition(after)
		return state != now || message != said
	},
}

package classes

import (
	"context"
	"maps"
	"time"

	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	"github.com/tenure-dev/tenure/internal/tenancy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// batchDelay is how long the reconciler collects changes of classes before it handles them:
// a cluster may have a thousand classes, which all appear when the manager starts.
const batchDelay = 200 * time.Millisecond

// Setup adds the reconciler to a manager. It watches the metadata of the kinds of classes, each
// from when the cluster serves it. It returns an error if the manager refuses the controller or
// a watch.
func (r *Reconciler) Setup(mgr manager.Manager) error {
	c, err := controller.New("classes", mgr, controller.Options{Reconciler: r, RateLimiter: backoff.RateLimiter()})
	if err != nil {
		return err
	}
	for _, kind := range tenancy.ClassKinds() {
		class := &metav1.PartialObjectMetadata{}
		class.SetGroupVersionKind(kind)
		if err := crdgate.Watch(mgr, c, class, together(), labelsChanged); err != nil {
			return err
		}
	}
	return nil
}

// together returns a handler that makes one request of many events.
func together() handler.EventHandler {
	enqueue := func(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: "classes"}}, batchDelay)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(q)
		},
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(q)
		},
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(q)
		},
	}
}

// labelsChanged leaves out the updates of a class that do not change which selectors select it.
var labelsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
		e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
}}

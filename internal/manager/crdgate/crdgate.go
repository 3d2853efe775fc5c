// Package crdgate lets controllers begin when the cluster serves the kinds that they
// work on: Flux may be installed after Tenure, or without some of its controllers.
package crdgate

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// requeueDelay is the delay after an event about a definition: the API server begins to
	// serve the kind a moment later.
	requeueDelay = 500 * time.Millisecond
	// maxDelay is the longest time between two checks.
	maxDelay = time.Minute
)

// StartWhenServed calls do, which for example adds a controller to the manager, when the cluster
// serves all kinds. If the cluster serves them already, StartWhenServed returns the error of do.
// Otherwise it calls do later, and an error of do ends the manager.
func StartWhenServed(mgr manager.Manager, do func() error, kinds ...schema.GroupVersionKind) error {
	missing := unserved(mgr, kinds)
	if len(missing) == 0 {
		return do()
	}
	mgr.GetLogger().Info("waiting for the cluster to serve kinds", "kinds", fmt.Sprint(missing))
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if !await(ctx, mgr, kinds) {
			return nil
		}
		return do()
	}))
}

// Watch lets a controller watch objects of a kind as soon as the cluster serves the kind. It
// returns an error if the watch cannot be added now. If the kind is served later, an error of the
// watch ends the manager.
func Watch(mgr manager.Manager, c controller.Controller, object client.Object, to handler.EventHandler, when ...predicate.Predicate) error {
	return StartWhenServed(mgr, func() error {
		return c.Watch(source.TypedKind[client.Object, reconcile.Request](mgr.GetCache(), object, to, when...))
	}, object.GetObjectKind().GroupVersionKind())
}

// Serves reports whether the cluster serves a kind.
func Serves(mgr manager.Manager, kind schema.GroupVersionKind) bool {
	return len(unserved(mgr, []schema.GroupVersionKind{kind})) == 0
}

func unserved(mgr manager.Manager, kinds []schema.GroupVersionKind) []schema.GroupVersionKind {
	var missing []schema.GroupVersionKind
	for _, kind := range kinds {
		if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			missing = append(missing, kind)
		}
	}
	return missing
}

// await returns true when the kinds are served, and false when the context ends
// before.
func await(ctx context.Context, mgr manager.Manager, kinds []schema.GroupVersionKind) bool {
	changed, end := definitions(ctx, mgr)
	defer end()
	return look(ctx, changed, func() bool { return len(unserved(mgr, kinds)) == 0 })
}

// look returns true when served returns true, and false if the context ends before. It calls served
// after each change of a CRD and, because a change may arrive before the cluster serves the kind,
// also with a growing delay.
func look(ctx context.Context, changed <-chan struct{}, served func() bool) bool {
	wait := requeueDelay
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for !served() {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
			wait = requeueDelay
		case <-timer.C:
			wait = min(2*wait, maxDelay)
		}
		timer.Reset(wait)
	}
	return true
}

// definitions returns a channel that receives a value after changes of CustomResourceDefinitions,
// whose metadata the manager watches anyway. If the informer fails, the channel receives nothing,
// and await only checks at intervals.
func definitions(ctx context.Context, mgr manager.Manager) (changed <-chan struct{}, end func()) {
	told := make(chan struct{}, 1)
	tell := func() {
		select {
		case told <- struct{}{}:
		default: // the channel already has a value
		}
	}
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	informer, err := mgr.GetCache().GetInformer(ctx, crd)
	if err != nil {
		return told, func() {}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { tell() },
		UpdateFunc: func(any, any) { tell() },
	})
	if err != nil {
		return told, func() {}
	}
	return told, func() { _ = informer.RemoveEventHandler(registration) }
}

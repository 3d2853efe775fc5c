// Package served lets controllers begin when the cluster serves the kind that they
// work on: Flux may be installed after Tenure, or without some of its controllers.
package served

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// lookAgain is how often a kind is asked for that the cluster does not serve.
const lookAgain = time.Minute

// Wait adds something to a manager: at once if the cluster serves the kind, and
// otherwise when it does.
func Wait(mgr manager.Manager, kind schema.GroupVersionKind, add func() error) error {
	if serves(mgr, kind) {
		return add()
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		for !serves(mgr, kind) {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
		return add()
	}))
}

func serves(mgr manager.Manager, kind schema.GroupVersionKind) bool {
	_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return err == nil
}

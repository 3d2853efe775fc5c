package ablation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// takenBack is that the manager takes back what a grant gave. Without the manager nothing
// would be given, so what it gave is disowned instead: it leaves alone what is not its
// own.
func takenBack() Control {
	return Control{
		Name: "the manager, which takes the artifact away when the grant ends",
		Away: "copies lose the label by which the manager knows its own, so that it leaves them alone",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- t.disown(ctx) }()
			return func(context.Context) error {
				cancel()
				return <-ended
			}, nil
		},
	}
}

// disown takes the manager's label off all copies that have an artifact, until ctx ends.
func (t *target) disown(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		copies := &unstructured.UnstructuredList{}
		copies.SetGroupVersionKind(schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "ExternalArtifactList"})
		err := t.admin.List(ctx, copies, client.MatchingLabels{tenancy.LabelManaged: tenancy.ManagedValue})
		for i := range copies.Items {
			if _, has, _ := unstructured.NestedMap(copies.Items[i].Object, "status", "artifact"); has {
				body := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, tenancy.LabelManaged)
				err = errors.Join(err, client.IgnoreNotFound(t.admin.Patch(ctx, &copies.Items[i], client.RawPatch("application/merge-patch+json", []byte(body)))))
			}
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot disown what was granted: %w", err)
		}
	}
}

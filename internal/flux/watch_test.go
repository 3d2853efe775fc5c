package flux

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// patience bounds every wait of these tests.
const patience = time.Minute

var errDone = errors.New("done")

// replay makes the fake client's watches begin with what is there. A real server
// begins at the list's resource version, which the fake one ignores: a change
// between list and watch would be lost.
func replay() interceptor.Funcs {
	return interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			live, err := c.Watch(ctx, list, opts...)
			if err != nil {
				return nil, err
			}
			if err := c.List(ctx, list, opts...); err != nil {
				return nil, err
			}
			objects, err := apimeta.ExtractList(list)
			if err != nil {
				return nil, err
			}
			events := make(chan watch.Event)
			proxy := watch.NewProxyWatcher(events)
			go func() {
				defer live.Stop()
				for _, obj := range objects {
					select {
					case events <- watch.Event{Type: watch.Modified, Object: obj}:
					case <-proxy.StopChan():
						return
					}
				}
				for {
					select {
					case event := <-live.ResultChan():
						select {
						case events <- event:
						case <-proxy.StopChan():
							return
						}
					case <-proxy.StopChan():
						return
					}
				}
			}()
			return proxy, nil
		},
	}
}

// watchUntil watches until the names of the rows are as wanted.
func watchUntil(t *testing.T, c client.WithWatch, selection Selection, want ...[]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last []string
	err := Watch(ctx, c, selection, func(rows []Row) error {
		last = names(rows)
		if cmp.Equal(want[0], last) {
			want = want[1:]
		}
		if len(want) == 0 {
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		t.Errorf("Watch ended with %v; still waiting for rows %v, the last were %v", err, want, last)
	}
}

func TestWatchFollowsChanges(t *testing.T) {
	t.Parallel()
	c := newFake(&kustomizev1.Kustomization{ObjectMeta: at("a", "one", 1)}).WithInterceptorFuncs(replay()).Build()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	step := 0
	err := Watch(ctx, c, Selection{Kinds: []Kind{Kustomization}}, func(rows []Row) error {
		switch {
		case step == 0 && len(rows) == 1:
			step++
			return c.Create(ctx, &kustomizev1.Kustomization{ObjectMeta: at("a", "two", 1)})
		case step == 1 && len(rows) == 2:
			step++
			var obj kustomizev1.Kustomization
			if err := c.Get(ctx, client.ObjectKey{Namespace: "a", Name: "one"}, &obj); err != nil {
				return err
			}
			obj.Spec.Suspend = true
			return c.Update(ctx, &obj)
		case step == 2 && rows[0].Suspended:
			step++
			return c.Delete(ctx, &kustomizev1.Kustomization{ObjectMeta: at("a", "two", 1)})
		case step == 3 && len(rows) == 1:
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		t.Errorf("Watch ended with %v after step %d of 3", err, step)
	}
}

func TestWatchWaitsForCRDs(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	funcs := missing(func(list client.ObjectList) bool {
		_, ok := list.(*sourcev1.BucketList)
		return ok && calls.Add(1) < 3
	})
	c := newFake(&sourcev1.Bucket{ObjectMeta: at("a", "late", 1)}, &kustomizev1.Kustomization{ObjectMeta: at("a", "here", 1)}).
		WithInterceptorFuncs(funcs).Build()
	watchUntil(t, c, Selection{Kinds: []Kind{Bucket, Kustomization}},
		[]string{"Kustomization/a/here"}, []string{"Bucket/a/late", "Kustomization/a/here"})
}

// TestWatchSurvivesTheServer ends every stream at once and fails every other
// list, as a server that is restarted does.
func TestWatchSurvivesTheServer(t *testing.T) {
	t.Parallel()
	var lists atomic.Int32
	c := newFake(&kustomizev1.Kustomization{ObjectMeta: at("a", "one", 1)}).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			n := lists.Add(1)
			if n%2 == 1 {
				return errors.New("connection refused")
			}
			if n == 4 {
				if err := c.Create(ctx, &kustomizev1.Kustomization{ObjectMeta: at("a", "two", 1)}); err != nil {
					return err
				}
			}
			return c.List(ctx, list, opts...)
		},
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			w := watch.NewFake()
			w.Stop()
			return w, nil
		},
	}).Build()
	watchUntil(t, c, Selection{Kinds: []Kind{Kustomization}},
		[]string{"Kustomization/a/one"}, []string{"Kustomization/a/one", "Kustomization/a/two"})
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	t.Run("forbidden", func(t *testing.T) {
		t.Parallel()
		c := newFake().WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "kustomizations"}, "", errors.New("no"))
			},
		}).Build()
		err := Watch(t.Context(), c, Selection{Kinds: []Kind{Kustomization}}, func([]Row) error { return nil })
		if !apierrors.IsForbidden(err) {
			t.Errorf("a user without rights would wait for ever\nerror = %v, want forbidden", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		err := Watch(ctx, newFake().Build(), Selection{}, func([]Row) error { cancel(errDone); return nil })
		if !errors.Is(err, errDone) {
			t.Errorf("error = %v, want the context's cause", err)
		}
	})
}

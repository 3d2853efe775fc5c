package catalog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/internal/discovery"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A release whose end takes long leaves neither its chart nor its records behind.
func TestUndoRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "record", Labels: map[string]string{"owner": "helm", "name": name("x")}}}
		e := newFakeEnv(interceptor.Funcs{}, record)
		e.Admin = interceptor.NewClient(e.Admin, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return c.Get(ctx, key, o, opts...)
			},
			DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return c.DeleteAllOf(ctx, o, opts...)
			},
		})
		e.Repository = &discovery.Repository{}
		u := e.release("x", "aimed", nil)
		chart := helmChartOf(u)
		u.SetFinalizers([]string{"example.com/slow"})
		for _, o := range []client.Object{u, chart} {
			if err := e.Admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		e.removeRelease(u)
		if took := time.Since(began); took < removePatience {
			t.Errorf("it took %s: nothing was waited for", took)
		}
		for _, o := range []client.Object{u, chart, record} {
			if err := e.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); client.IgnoreNotFound(err) != nil || err == nil {
				t.Errorf("%T %s is left behind: %v", o, o.GetName(), err)
			}
		}
	})
}

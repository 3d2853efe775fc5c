package catalog

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A tenant without a right to Pods gets one by a workload of any kind that it may create.
func TestRunsPods(t *testing.T) {
	t.Parallel()
	privileged := pod(map[string]any{}, map[string]any{"privileged": true})
	for _, w := range workloads {
		for _, allowed := range []bool{true, false} {
			e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				kind := o.GetObjectKind().GroupVersionKind().Kind
				switch {
				case kind == "ConfigMap" || kind == w.kind && allowed:
					return c.Create(ctx, o, opts...)
				}
				return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, o.GetName(), errRefused)
			}})
			f := runsPods([]func(*Scenario) *unstructured.Unstructured{privileged}, request{what: "run a Pod", aimed: creating(privileged)})(t.Context(), e)
			want := map[bool]Outcome{true: GotThrough, false: Stopped}[allowed]
			if f.Outcome != want {
				t.Errorf("%s (allowed: %v): want %s, got %s: %s%s", w.kind, allowed, want, f.Outcome, f.Control, f.Reason)
			}
		}
	}
}

// errRefused is a refusal in the words of RBAC.
var errRefused = &refusedError{}

type refusedError struct{}

func (*refusedError) Error() string { return `User "team" cannot create resource "any"` }

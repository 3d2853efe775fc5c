package catalog

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestReplicationBeforeRights checks that I15 gets through if the manager creates foreign objects, although
// it first reports a refusal: the API server did not yet know its right to impersonate the account when it
// applied the first objects, and did when it applied the tenant's own.
func TestReplicationBeforeRights(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{}, object(v1alpha1.GroupVersion.String(), "Tenant", "", "team", nil))
	passes := 0
	e.Admin = interceptor.NewClient(e.Admin, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, declared runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			content, err := json.Marshal(declared)
			if err != nil {
				return err
			}
			tenant := &unstructured.Unstructured{}
			if err := json.Unmarshal(content, &tenant.Object); err != nil {
				return err
			}
			lists, _, _ := unstructured.NestedSlice(tenant.Object, "spec", "objects")
			if len(lists) == 0 {
				return nil
			}
			passes++
			items, _, _ := unstructured.NestedSlice(lists[0].(map[string]any), "items")
			for _, item := range items {
				u := &unstructured.Unstructured{Object: item.(map[string]any)}
				if u.GetNamespace() != e.Namespace && passes == 1 {
					continue
				}
				if err := c.Create(ctx, u); err != nil && !apierrors.IsAlreadyExists(err) {
					return err
				}
			}
			current := tenant.DeepCopy()
			if err := c.Get(ctx, client.ObjectKeyFromObject(tenant), current); err != nil {
				return err
			}
			refused := map[string]any{"type": replicated, "status": "False", "message": `cannot impersonate resource "serviceaccounts"`}
			if err := unstructured.SetNestedSlice(current.Object, []any{refused}, "status", "conditions"); err != nil {
				return err
			}
			return c.Update(ctx, current)
		},
	})
	if f := replicatesElsewhere(t.Context(), e); f.Outcome != GotThrough {
		t.Errorf("%s after %d declarations, want got through: %s", f.Outcome, passes, f.Message+f.Evidence+f.Reason)
	}
}

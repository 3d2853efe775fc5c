package catalog

import (
	"context"
	"testing"

	"github.com/tenure-dev/tenure/internal/discovery"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestDeliveredAltered checks that an object that Flux applied stops the attack if a policy took away what the attack is
// about, and left the tenant's own object alone.
func TestDeliveredAltered(t *testing.T) {
	t.Parallel()
	annotated := func(suffix string, annotations map[string]string, data any) *unstructured.Unstructured {
		u := object("v1", "ConfigMap", "team", name("x")+suffix, map[string]any{"data": map[string]any{"kept": data}})
		u.SetAnnotations(annotations)
		return u
	}
	copied := map[string]string{"example.com/copy-to": "others"}
	canary, own := annotated("", copied, "yes"), annotated("-own", map[string]string{"example.com/note": "mine"}, "yes")
	for _, tc := range []struct {
		reason              string
		mutates             bool
		applied, ownApplied *unstructured.Unstructured
		outcome             Outcome
		control             string
	}{
		{reason: "as in the files", mutates: true, applied: canary, ownApplied: own, outcome: GotThrough},
		{reason: "a policy took the annotation away", mutates: true, applied: annotated("", nil, "yes"), ownApplied: own, outcome: Stopped, control: "policy that changes metadata.annotations"},
		{reason: "a policy gave the annotation another value", mutates: true, applied: annotated("", map[string]string{"example.com/copy-to": "team"}, "yes"), ownApplied: own, outcome: Stopped, control: "policy that changes metadata.annotations.example.com/copy-to"},
		{reason: "a policy took the annotations of every object away", mutates: true, applied: annotated("", nil, "yes"), ownApplied: annotated("-own", nil, "yes"), outcome: GotThrough},
		{reason: "a policy changed what both objects have", mutates: true, applied: annotated("", copied, "no"), ownApplied: own, outcome: GotThrough},
		{reason: "a policy added an annotation", mutates: true, applied: annotated("", map[string]string{"example.com/copy-to": "others", "more": "yes"}, "yes"), ownApplied: own, outcome: GotThrough},
		{reason: "the tenant's own object did not arrive", mutates: true, applied: annotated("", nil, "yes"), outcome: GotThrough},
		{reason: "no policy of the fleet changes objects", applied: annotated("", nil, "yes"), ownApplied: own, outcome: GotThrough},
	} {
		applies := map[string]*unstructured.Unstructured{name("x"): tc.applied, name("x-own"): tc.ownApplied}
		var e *Scenario
		e = newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if applied := applies[o.GetName()]; o.GetObjectKind().GroupVersionKind().Kind == "Kustomization" && applied != nil {
				if err := e.Admin.Create(ctx, applied.DeepCopy()); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		}})
		e.Admin = interceptor.NewClient(e.Admin, interceptor.Funcs{Watch: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
			u := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "team", name("x"), map[string]any{"status": map[string]any{
				"conditions": []any{map[string]any{"type": "Ready", "status": "True", "message": "Applied revision"}},
			}})
			w := watch.NewFakeWithChanSize(1, false)
			w.Add(u)
			return w, nil
		}})
		e.Repository, e.mutates = &discovery.Repository{}, tc.mutates
		if got := e.reconciles(t.Context(), "x", canary, own, nil); got.Outcome != tc.outcome || got.Control != tc.control {
			t.Errorf("%s: got %q by %q (%s%s), want %q by %q", tc.reason, got.Outcome, got.Control, got.Evidence, got.Reason, tc.outcome, tc.control)
		}
	}
}

package catalog

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestConflicts checks that an attack has Flux try again after a conflict, takes no answer from before for
// the new one, and gives up at some time.
func TestConflicts(t *testing.T) {
	t.Parallel()
	const met = `Kustomization/team/x apply failed: Operation cannot be fulfilled on resourcequotas "bounds": the object has been modified; please apply your changes to the latest version and try again`
	for name, tc := range map[string]struct {
		reason    string
		conflicts int
		attempts  int
		want      readiness
	}{
		"none":    {"an answer without a conflict counts at once", 0, 0, readiness{metav1.ConditionTrue, "applied"}},
		"one":     {"Flux tries once more", 1, 1, readiness{metav1.ConditionTrue, "applied"}},
		"several": {"Flux tries until no other attack is in the way", 3, 3, readiness{metav1.ConditionTrue, "applied"}},
		"always":  {"a conflict that stays is the answer", 100, maxRepetitions, readiness{metav1.ConditionFalse, met}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := watch.NewFakeWithChanSize(100, false)
			says := func(ready metav1.ConditionStatus, message, handled string) {
				u := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "team", "x", nil)
				u.Object["status"] = map[string]any{
					"lastHandledReconcileAt": handled,
					"conditions":             []any{map[string]any{"type": "Ready", "status": string(ready), "message": message}},
				}
				events.Modify(u)
			}
			attempts := 0
			answer := func(handled string) {
				if attempts < tc.conflicts {
					says(metav1.ConditionFalse, met, handled)
					return
				}
				says(metav1.ConditionTrue, "applied", handled)
			}
			e := newFakeEnv(interceptor.Funcs{})
			e.Admin = interceptor.NewClient(e.Admin, interceptor.Funcs{
				Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
					return events, nil
				},
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
					content, err := p.Data(o)
					if err != nil {
						return err
					}
					var patch unstructured.Unstructured
					if err := json.Unmarshal(content, &patch.Object); err != nil {
						return err
					}
					// The annotation alone changes nothing of the answer from before.
					says(metav1.ConditionFalse, met, "an earlier request")
					says(metav1.ConditionUnknown, "Reconciliation in progress", "an earlier request")
					attempts++
					handled := patch.GetAnnotations()[requestedAt]
					if forced := patch.GetAnnotations()["reconcile.fluxcd.io/forceAt"]; forced != handled {
						t.Errorf("helm-controller would not try again: requestedAt is %q, forceAt %q", handled, forced)
					}
					answer(handled)
					return nil
				},
			})
			answer("an earlier request")
			got, err := e.awaitCondition(t.Context(), object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "team", "x", nil))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(readiness{})); diff != "" || attempts != tc.attempts {
				t.Errorf("%s: %d further attempts, want %d; (-want +got):\n%s", tc.reason, attempts, tc.attempts, diff)
			}
		})
	}
}

package catalog

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestLeavesQuotas lets the tenant remove one label of its namespace.
func TestLeavesQuotas(t *testing.T) {
	t.Parallel()
	const policy = `ValidatingAdmissionPolicy 'tenure-namespaces' with binding 'b' denied request: no`
	tenant := func(selector map[string]any, allowed ...any) client.Object {
		return object("tenure.dev/v1alpha1", "Tenant", "", "team", map[string]any{"spec": map[string]any{
			"namespaces": map[string]any{"allowed": map[string]any{"labels": allowed}},
			"quotas":     []any{map[string]any{"name": "tests", "hard": map[string]any{"pods": "1"}, "namespaceSelector": selector}},
		}})
	}
	labelled := map[string]any{"matchLabels": map[string]any{"stage": "test"}}
	without := map[string]any{"matchExpressions": []any{map[string]any{"key": "free", "operator": "DoesNotExist"}}}
	for _, tc := range []struct {
		reason, accepted string
		tenant           client.Object
		want             Outcome
		words            string
	}{
		{"no label can be changed", "", tenant(labelled), Stopped, "tenure-namespaces"},
		{"the label can be removed", `"stage":null`, tenant(labelled), GotThrough, "leave the quota tests of its Tenant"},
		{"a label can be added", `"free":"tenure-attack-i6"`, tenant(without), GotThrough, "by the label free"},
		{"owners choose the label", `"stage":null`, tenant(labelled, "sta*"), Stopped, "tenure-namespaces"},
		{"owners choose another label", `"stage":null`, tenant(labelled, "stag"), GotThrough, "leave the quota tests"},
		{"the quota selects other namespaces", `"stage":null`, tenant(map[string]any{"matchLabels": map[string]any{"stage": "other"}}), Stopped, "tenure-namespaces"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"stage": "test"}}}
			e := newFakeEnv(interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
					if data, err := p.Data(o); err != nil || tc.accepted != "" && strings.Contains(string(data), tc.accepted) {
						return err
					}
					return forbidden(policy)
				},
			}, tc.tenant, ns)
			f := changesLabels(request{what: "switch off Pod Security", aimed: patchNamespace("", `{"metadata":{"labels":{"x":"y"}}}`)})(t.Context(), e)
			if said := f.Control + f.Evidence + f.Reason; f.Outcome != tc.want || !strings.Contains(said, tc.words) {
				t.Errorf("got %+v, want %s with %q", f, tc.want, tc.words)
			}
		})
	}
}

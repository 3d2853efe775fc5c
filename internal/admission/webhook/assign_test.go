package webhook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An administrator who removes all labels at once removes the map, too.
func TestRestore(t *testing.T) {
	t.Parallel()
	before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelTenant: "oil"}}}
	after := &corev1.Namespace{}
	for _, label := range tenantLabels {
		restore(after, before, label)
	}
	if diff := cmp.Diff(before.Labels, after.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	added := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelTenant: "gas"}}}
	restore(added, &corev1.Namespace{}, v1alpha1.LabelTenant)
	if len(added.Labels) > 0 {
		t.Errorf("the labels %v stay", added.Labels)
	}
}

func TestMovesTo(t *testing.T) {
	t.Parallel()
	of := func(label, tenant string) map[string]string { return map[string]string{label: tenant, "team": "a"} }
	both := map[string]string{v1alpha1.LabelTenant: "oil", v1alpha1.LabelCapsuleTenant: "oil"}
	capsulesAlone := map[string]string{v1alpha1.LabelTenant: "oil", v1alpha1.LabelCapsuleTenant: "gas"}
	for _, tc := range []struct {
		reason        string
		before, after map[string]string
		to            string
		moves         bool
	}{
		{"the same", both, both, "", false},
		{"another label", of(v1alpha1.LabelTenant, "oil"), map[string]string{v1alpha1.LabelTenant: "oil"}, "", false},
		{"a first tenant", nil, of(v1alpha1.LabelTenant, "oil"), "oil", true},
		{"another tenant by Capsule's label alone", both, capsulesAlone, "gas", true},
		{"no tenant", both, nil, "", true},
		{"Flux's label", nil, of(v1alpha1.LabelFluxTenant, "oil"), "oil", true},
	} {
		if to, moves := movesTo(tc.before, tc.after); to != tc.to || moves != tc.moves {
			t.Errorf("%s: moves to %q: %t, want %q: %t", tc.reason, to, moves, tc.to, tc.moves)
		}
	}
}

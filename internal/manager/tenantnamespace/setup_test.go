package tenantnamespace

import (
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// TestSpecChanged also lets through an object that was deleted and created again while the cache had no watch.
func TestSpecChanged(t *testing.T) {
	t.Parallel()
	tenant := func(uid types.UID, generation int64) *v1alpha1.Tenant {
		return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev", UID: uid, Generation: generation}}
	}
	for _, tc := range []struct {
		reason        string
		before, after *v1alpha1.Tenant
		want          bool
	}{
		{"nothing changed", tenant("1", 1), tenant("1", 1), false},
		{"the spec changed", tenant("1", 1), tenant("1", 2), true},
		{"it is another object with the same generation", tenant("1", 1), tenant("2", 1), true},
	} {
		e := event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}
		if got := SpecChanged.Update(e); got != tc.want {
			t.Errorf("%s: got %v", tc.reason, got)
		}
		if got := tenantChanged.Update(e); got != tc.want {
			t.Errorf("%s, for a Tenant: got %v", tc.reason, got)
		}
	}
}

package replication

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestWaits follows a Tenant of which a namespace does not come to be in place.
func TestWaits(t *testing.T) {
	t.Parallel()
	raw := runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"house"}}`)}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "solar"}}
	tenant.Spec.Objects = []v1alpha1.ReplicatedObjects{{Name: "all", Items: []v1alpha1.ReplicatedItem{{RawExtension: raw}}}}
	late := settled("solar-b")
	delete(late.Labels, v1alpha1.LabelParameters)
	c := faked(t, settled("solar-a"), late, tenant)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	e := engine(c)
	e.Now = func() time.Time { return now }
	r := &TenantReconciler{Client: c, Engine: e, Profiles: &posture{profile: &v1alpha1.TenancyProfile{}}}
	// looks returns when it is looked at again, each time at that moment.
	looks := func(times int) []time.Duration {
		var after []time.Duration
		for range times {
			result, err := r.Reconcile(t.Context(), requestFor(tenant))
			if err != nil {
				t.Fatal(err)
			}
			after = append(after, result.RequeueAfter)
			now = now.Add(result.RequeueAfter)
		}
		return after
	}
	const s = time.Second
	for _, step := range []struct {
		reason string
		change func() error
		want   []time.Duration
	}{
		{"what does not come is looked for less and less often", func() error { return nil }, []time.Duration{2 * s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, resync, resync}},
		{"another one may come at once", func() error {
			other := settled("solar-c")
			delete(other.Labels, v1alpha1.LabelParameters)
			return c.Create(t.Context(), other)
		}, []time.Duration{2 * s, 2 * s, 4 * s}},
		{"one of them has come", func() error { return c.Update(t.Context(), settled("solar-b")) }, []time.Duration{2 * s, 2 * s}},
		{"all are there", func() error { return c.Update(t.Context(), settled("solar-c")) }, []time.Duration{resync, resync}},
		{"the Tenant is gone", func() error { return c.Delete(t.Context(), tenant) }, []time.Duration{0}},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, looks(len(step.want))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
	}
}

// TestForget: what is gone is not remembered.
func TestForget(t *testing.T) {
	t.Parallel()
	var w pendingSources
	w.next("one", map[string]bool{"a": true}, time.Now())
	w.next("two", map[string]bool{"a": true}, time.Now())
	w.forget("one")
	w.next("two", nil, time.Now())
	if len(w.all) != 0 {
		t.Errorf("it remembers %v", w.all)
	}
}

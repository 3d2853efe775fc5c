package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/ablation"
)

// TestAblation removes every control of the example fleet by itself, and checks that exactly
// the attacks that the control should stop get through. With all controls restored, all
// attacks are stopped again.
func TestAblation(t *testing.T) {
	t.Parallel()
	e := copyExample(t)
	r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing#main="+e.billing))
	expectNothing(t, "the example fleet becomes ready altogether", failed)
	opts := attackOptions(r)
	opts.Tenant = "dev-team"
	all, err := ablation.Run(t.Context(), ablation.Options{Attack: opts, Progress: func(m ablation.Measured) {
		t.Logf("without %s: %v after %.1fs", m.Row.Name(), m.Through, m.Took.Seconds())
	}})
	if err != nil {
		t.Error(err)
	}
	if got, want := len(all), len(ablation.Rows())+1; got != want {
		t.Errorf("%d rows were tried, want %d", got, want)
	}
	for _, m := range all {
		if diff := cmp.Diff(m.Row.Through(), m.Through); diff != "" {
			t.Errorf("what gets through without %s (-want +got):\n%s", m.Row.Name(), diff)
		}
		for _, fault := range m.Faults {
			t.Errorf("without %s: %s", m.Row.Name(), fault)
		}
	}
	t.Log("\n" + ablation.Matrix(all))
}

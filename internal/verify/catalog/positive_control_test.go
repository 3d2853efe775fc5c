package catalog

import (
	"context"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// An attack is stopped if the rule tenure-flagger also refuses the positive control, and not
// proven if another policy refuses the positive control.
func TestOnFlagger(t *testing.T) {
	t.Parallel()
	const policy = "ValidatingAdmissionPolicy 'tenure-flux-objects' with binding 'tenure-flux-objects' denied request: "
	profile := func(flagger bool) *unstructured.Unstructured {
		tenants := map[string]any{}
		if flagger {
			tenants["flagger"] = map[string]any{}
		}
		return object(v1alpha1.GroupVersion.String(), "TenancyProfile", "", v1alpha1.ProfileName, map[string]any{"spec": map[string]any{"tenants": tenants}})
	}
	canary := func(name string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("flagger.app/v1beta1", "Canary", e.Namespace, name, nil)
		}
	}
	for _, tc := range []struct {
		reason      string
		allowed     bool
		aimed, own  string
		want        Outcome
		wantControl string
	}{
		{"not allowed", false, policy + "no Flagger (rule tenure-flagger)", policy + "no Flagger (rule tenure-flagger)", Stopped, "policy tenure-flux-objects (own objects too)"},
		{"allowed, and only the own is accepted", true, policy + "another namespace (rule tenure-references)", "", Stopped, "policy tenure-flux-objects"},
		{"allowed, and the own is refused", true, policy + "another namespace (rule tenure-references)", policy + "no Flagger (rule tenure-flagger)", NotProven, ""},
		{"another rule refuses the own", false, policy + "another namespace (rule tenure-references)", policy + "no (rule tenure-bounds)", NotProven, ""},
		{"nothing refuses", false, "", "", NotProven, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				if refused := map[string]string{"aimed": tc.aimed, "own": tc.own}[o.GetName()]; refused != "" {
					return forbidden(refused)
				}
				return nil
			}}, profile(tc.allowed))
			if f := onFlagger(canary("aimed"), canary("own"))(t.Context(), e); f.Outcome != tc.want || f.Control != tc.wantControl {
				t.Errorf("got %s by %q (%s), want %s by %q", f.Outcome, f.Control, f.Reason, tc.want, tc.wantControl)
			}
		})
	}
}

// TestUnhealthy checks that only an applied object that does not become healthy counts as delivered.
func TestUnhealthy(t *testing.T) {
	t.Parallel()
	const waited = "health check failed after 20.01s: timeout waiting for: [Kustomization/a/b status: 'InProgress']"
	for _, tc := range []struct {
		reason string
		said   readiness
		want   bool
	}{
		{"an object does not become healthy", readiness{ready: metav1.ConditionFalse, message: waited}, true},
		{"Flux still waits", readiness{ready: metav1.ConditionUnknown, message: waited}, false},
		{"the object is refused", readiness{ready: metav1.ConditionFalse, message: "ConfigMap/a/b dry-run failed: health check failed after all"}, false},
	} {
		if got := isUnhealthy(tc.said); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
}

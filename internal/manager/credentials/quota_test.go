package credentials

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestForbidden is refused something in one namespace.
func TestForbidden(t *testing.T) {
	t.Parallel()
	const full = "exceeded quota: tenure, requested: count/secrets=1, used: count/secrets=5, limited: count/secrets=5"
	refused := func(what client.Object, at, why string) func(client.Object) error {
		return func(o client.Object) error {
			if o.GetNamespace() != at || o.GetObjectKind().GroupVersionKind().Kind != what.GetObjectKind().GroupVersionKind().Kind {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Resource: "objects"}, o.GetName(), errors.New(why))
		}
	}
	for name, tc := range map[string]struct {
		reason string
		refuse func(client.Object) error
		after  time.Duration
		// event is what the account's event says, and issued where it has a kubeconfig.
		event  string
		issued []string
	}{
		"home":    {"its owner has to make room in its own namespace", refused(plan.Filled("home", nil, credentials.Token{}, ""), "home", full), retryInterval, "Warning QuotaExceeded", nil},
		"copy":    {"one namespace that is full takes nothing from the others", refused(plan.Filled("apps", nil, credentials.Token{}, ""), "apps", full), retryInterval, "Warning QuotaExceeded namespace apps: ", []string{"home"}},
		"account": {"accounts are counted as well", refused(plan.Stand("apps"), "apps", full), retryInterval, "Warning QuotaExceeded namespace apps: ", []string{"home"}},
		"rights":  {"rights take a moment, which nobody has to be told", refused(plan.Filled("home", nil, credentials.Token{}, ""), "home", "not yet"), requeueDelay, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, recorder := cluster(t, &posture{profile: &v1alpha1.TenancyProfile{}}, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if err := tc.refuse(o); err != nil {
						return err
					}
					return c.Create(ctx, o, options...)
				},
			})
			now := time.Now()
			r.Now = func() time.Time { return now }
			if got := step(t, r).RequeueAfter; got != tc.after {
				t.Errorf("%s: it is tried again after %s, not %s", tc.reason, got, tc.after)
			}
			var told []string
			for len(recorder.Events) > 0 {
				if event := <-recorder.Events; strings.HasPrefix(event, corev1.EventTypeWarning) {
					told = append(told, event)
				}
			}
			if (tc.event == "") != (len(told) == 0) || len(told) > 1 || len(told) == 1 && (!strings.HasPrefix(told[0], tc.event) || !strings.Contains(told[0], full)) {
				t.Errorf("%s: its events are %q, not %q", tc.reason, told, tc.event)
			}
			var got []string
			for namespace := range issued(t, r) {
				got = append(got, namespace)
			}
			if diff := gocmp.Diff(tc.issued, got); diff != "" {
				t.Errorf("%s: where it has a kubeconfig (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

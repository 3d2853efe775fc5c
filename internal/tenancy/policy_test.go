package tenancy

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// TestLater is about what of a Tenant's sync has to wait for the namespace's own
// parameters: under the posture of all, an interval of 30 s and a timeout of 4 min are
// the bounds, and https://git.example.com/acme/* is what may be fetched from.
func TestLater(t *testing.T) {
	t.Parallel()
	const ours, theirs = `git: {url: "https://git.example.com/acme/app"}`, `git: {url: "https://git.example.com/other/app"}`
	both := []string{"GitRepository app", "Kustomization app"}
	for _, tc := range []struct {
		reason, sync, policy string
		labelled             bool
		want                 []string
	}{
		{"an address that all may fetch from", ours, "{}", false, nil},
		{"one that only the Tenant may", theirs, "{}", false, both},
		{"one that it may by now", theirs, "{}", true, nil},
		{"a policy of its own that says the same as that of all", ours, "{bounds: {minInterval: 30s, maxTimeout: 4m}}", false, nil},
		{"a policy of its own that allows more does not matter for what all may", ours, "{sources: {git: ['https://**'], providers: [aws]}}", false, nil},
		{"a shorter interval than all may have", ours + ", interval: 10s", "{bounds: {minInterval: 10s, maxTimeout: 4m}}", false, both},
		{"a longer timeout than all may have, which sources do not have", ours, "{bounds: {minInterval: 30s, maxTimeout: 15m}}", false, []string{"Kustomization app"}},
		{"an image that all may have as little", "oci: {url: 'oci://registry.example.com/app'}", "{}", false, []string{"OCIRepository app", "Kustomization app"}},
		{"an address that no pattern could be", `git: {url: "https://git.example.com/acme/a..b"}`, "{}", false, both},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			tenant := parseTenant(t, fmt.Sprintf("{metadata: {name: dev}, spec: {sync: [{name: app, namespace: apps, %s}], policy: %s}}", tc.sync, tc.policy))
			ns := Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev"}, Tenant: tenant, Siblings: []string{"apps"}}
			if tc.labelled {
				ns.Labels[v1alpha1.LabelParameters] = ManagedValue
			}
			profile := posture()
			profile.Spec.Tenants.Bounds.MaxTimeout.Duration = 4 * time.Minute
			objects, err := Desired(ns, profile)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range objects.Later {
				got = append(got, o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: what is put off (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

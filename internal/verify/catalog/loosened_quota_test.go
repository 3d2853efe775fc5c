package catalog

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestLoosensPluginPolicies checks that a tenant's change of a policy of a network plugin counts if the platform put
// the policy into the tenant's namespace.
func TestLoosensPluginPolicies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		namespace, by string
		through       bool
	}{
		"of the platform":        {"team", "flux-system", true},
		"its own":                {"team", "team", false},
		"in another's namespace": {"other", "flux-system", false},
	} {
		u := object("cilium.io/v2", "CiliumNetworkPolicy", tc.namespace, "deny", nil)
		u.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "a", "kustomize.toolkit.fluxcd.io/namespace": tc.by})
		e := newFakeEnv(interceptor.Funcs{}, u)
		e.networkDoubts = []unenforced{{*u, "Cilium does not run here"}}
		f := loosensItsBounds(t.Context(), e)
		if (f.Outcome == GotThrough) != tc.through || tc.through && !strings.Contains(f.Evidence, "CiliumNetworkPolicy team/deny") {
			t.Errorf("%s: got %s, %q", name, f.Outcome, f.Evidence+f.Reason)
		}
	}
}

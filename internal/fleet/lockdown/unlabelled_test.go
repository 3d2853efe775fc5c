package lockdown_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

// TestUnlabelled checks that the lockdown names the namespaces in which Flux applies as a tenant's account and the rules
// do not apply for want of a label.
func TestUnlabelled(t *testing.T) {
	t.Parallel()
	const sync = "---\n{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: app, namespace: shop}, spec: {interval: 5m, path: ./, prune: true, %s sourceRef: {kind: GitRepository, name: shop}}}\n"
	const admin = "---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: shop}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, name: shop, namespace: shop}]}\n"
	as := func(account string) string { return strings.Replace(sync, "%s", account, 1) }
	for reason, tc := range map[string]struct {
		labels, objects string
		noted           bool
	}{
		"a tenant without a label":     {"{team: shop}", as("serviceAccountName: shop,"), true},
		"a tenant":                     {"{toolkit.fluxcd.io/tenant: shop}", as("serviceAccountName: shop,"), false},
		"a namespace without a sync":   {"{team: shop}", "", false},
		"an account of the platform's": {"{team: shop}", as("serviceAccountName: shop,") + admin, false},
	} {
		dir := small(t, map[string]string{
			"clusters/one/tenants.yaml":  "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: tenants, namespace: flux-system}\nspec: {path: ./tenants, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}\n",
			"tenants/kustomization.yaml": "resources: [shop.yaml]\n",
			"tenants/shop.yaml":          "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: " + tc.labels + "}}\n" + tc.objects,
		})
		f, err := layout.Load(dir, "clusters/one", layout.Options{URL: "https://fleet.invalid"})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := lockdown.Make(f, lockdown.Options{Tenants: true})
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(plan.Notes, "\n"); strings.Contains(notes, "do not apply in shop,") != tc.noted {
			t.Errorf("%s: the notes are %s", reason, notes)
		}
	}
}

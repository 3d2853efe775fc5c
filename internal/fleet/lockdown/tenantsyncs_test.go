package lockdown_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

// TestTenantSyncs checks that the Kustomization of a single tenant gets the platform's account
// only if the Kustomization that applies it gets the account too, and only for the platform's
// own source.
func TestTenantSyncs(t *testing.T) {
	t.Parallel()
	kustomization := func(name, path, more string) string {
		return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: " + name + ", namespace: flux-system}\n" +
			"spec: {path: " + path + ", prune: true, sourceRef: {kind: GitRepository, name: flux-system}" + more + "}\n"
	}
	const lost = "Kustomization flux-system/tenant-shop: set spec.serviceAccountName: tenure-root, it is out of the root's reach"
	for _, tt := range []struct{ reason, by, sync, want string }{
		{"as create tenant writes it", kustomization("tenants", "./tenants/one", ""), kustomization("tenant-shop", "./tenants/one/shop", ""), ""},
		{"as create tenant writes it in the guide's fleet", kustomization("tenants", "./tenants/one", ", serviceAccountName: kustomize-controller"),
			kustomization("tenant-shop", "./tenants/one/shop", ", serviceAccountName: kustomize-controller"), ""},
		{"both have an account of their own", kustomization("tenants", "./tenants/one", ", serviceAccountName: mine"),
			kustomization("tenant-shop", "./tenants/one/shop", ", serviceAccountName: mine"), ""},
		{"nothing hands an account on", kustomization("tenants", "./tenants/one", ", serviceAccountName: mine"), kustomization("tenant-shop", "./tenants/one/shop", ""), lost},
		{"another name", kustomization("tenants", "./tenants/one", ""), kustomization("shop", "./tenants/one/shop", ""), strings.Replace(lost, "tenant-shop", "shop", 1)},
		{"another source must not become cluster-admin", kustomization("tenants", "./tenants/one", ""),
			strings.Replace(kustomization("tenant-shop", "./", ""), "GitRepository, name: flux-system", "GitRepository, name: shop", 1),
			"Kustomization flux-system/tenant-shop: set spec.serviceAccountName: tenure-root if shop is the platform's alone"},
		{"nor one for a single namespace", kustomization("tenants", "./tenants/one", ""),
			strings.Replace(kustomization("tenant-shop", "./", ", targetNamespace: shop"), "GitRepository, name: flux-system", "GitRepository, name: shop", 1),
			"Kustomization flux-system/tenant-shop: set spec.serviceAccountName to an account with rights in namespace shop only"},
		{"the objects of another cluster", kustomization("tenants", "./tenants/one", ", kubeConfig: {secretRef: {name: other}}"), kustomization("tenant-shop", "./tenants/one/shop", ""), lost},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			dir := small(t, map[string]string{
				"clusters/one/tenants.yaml":            tt.by,
				"tenants/one/kustomization.yaml":       "resources: [shop.yaml]\n",
				"tenants/one/shop.yaml":                tt.sync,
				"tenants/one/shop/kustomization.yaml":  "resources: [../../base/shop]\n",
				"tenants/base/shop/kustomization.yaml": "resources: [namespace.yaml]\n",
				"tenants/base/shop/namespace.yaml":     "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {toolkit.fluxcd.io/tenant: shop}}\n",
			})
			f, err := layout.Load(dir, "clusters/one", layout.Options{URL: "https://fleet.invalid"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = lockdown.Make(f, lockdown.Options{Tenants: true})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s: got %v, want %q", tt.reason, err, tt.want)
			}
		})
	}
}

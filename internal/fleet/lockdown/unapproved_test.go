package lockdown_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

// TestSourcesNote checks that a second run names the sources of a tenant that got its label after the first run, with the
// flags that approve them, and none when they are approved.
func TestSourcesNote(t *testing.T) {
	t.Parallel()
	sources := `---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: app, namespace: NS}, spec: {interval: 5m, url: "https://git.example.com/NS/app"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {name: charts, namespace: NS}, spec: {interval: 5m, url: "https://charts.example.com/NS"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {name: oci, namespace: NS}, spec: {type: oci, interval: 5m, url: "oci://registry.example.com/NS/charts"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: OCIRepository, metadata: {name: variable, namespace: NS}, spec: {interval: 5m, url: "oci://${registry}/NS"}}
`
	team := func(name, labels string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + ", labels: " + labels + "}}\n" + strings.ReplaceAll(sources, "NS", name)
	}
	dir := small(t, map[string]string{
		"clusters/one/tenants.yaml":  "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: tenants, namespace: flux-system}\nspec: {path: ./tenants, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}\n",
		"tenants/kustomization.yaml": "resources: [mail.yaml, shop.yaml, own.yaml]\n",
		"tenants/mail.yaml":          team("mail", "{toolkit.fluxcd.io/tenant: mail}"),
		"tenants/shop.yaml":          team("shop", "{team: shop}"),
		"tenants/own.yaml":           team("own", "{toolkit.fluxcd.io/tenant: own}") + "---\n{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: own}, spec: {policy: {sources: {git: [\"https://git.example.com/own/*\"]}}}}\n",
	})
	noted := func(o lockdown.Options) string {
		o.Tenants = true
		for _, note := range apply(t, dir, "clusters/one", o).Notes {
			if strings.Contains(note, "tenure-sources") {
				return note
			}
		}
		return ""
	}
	if got := noted(lockdown.Options{}); got != "" {
		t.Errorf("the first run approves the addresses of all tenants, and says %s", got)
	}
	write(t, dir, "tenants/shop.yaml", team("shop", "{toolkit.fluxcd.io/tenant: shop}"))
	want := "the rule tenure-sources refuses these sources of tenants, because the TenancyProfile does not approve their addresses: " +
		"GitRepository shop/app, HelmRepository shop/oci; to approve them, run this again with --allow git=https://git.example.com/shop/app --allow helm=oci://registry.example.com/shop/charts"
	if got := noted(lockdown.Options{}); got != want {
		t.Errorf("the second run says %q, want %q", got, want)
	}
	if got := noted(lockdown.Options{Allow: []string{"git=https://git.example.com/shop/*", "oci=oci://registry.example.com/**"}}); got != "" {
		t.Errorf("approved addresses are listed: %s", got)
	}
}

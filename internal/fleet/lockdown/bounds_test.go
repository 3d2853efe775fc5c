package lockdown_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

// The rules look at what the platform writes into tenants' namespaces, too: the lockdown names what they would
// refuse, before the Kustomization that applies it fails in the cluster.
func TestBoundsAreNamed(t *testing.T) {
	t.Parallel()
	const shop = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {toolkit.fluxcd.io/tenant: shop}}}\n---\n"
	kustomization := func(namespace, spec string) string {
		return shop + "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: app, namespace: " + namespace + "}, spec: {path: ./, prune: true, serviceAccountName: shop, sourceRef: {kind: GitRepository, name: app}, " + spec + "}}\n"
	}
	release := func(spec string) string {
		return shop + "{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: app, namespace: shop}, spec: {interval: 5m, serviceAccountName: shop, " + spec + "}}\n"
	}
	bounds := func(bounds string) string {
		return "---\n{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: shop}, spec: {policy: {bounds: " + bounds + "}}}\n"
	}
	for reason, tc := range map[string]struct{ objects, want string }{
		"within the bounds":               {kustomization("shop", "interval: 30s, retryInterval: 1m, timeout: 15m, wait: true"), ""},
		"a short interval":                {kustomization("shop", "interval: 10s"), "Kustomization shop/app (spec.interval is 10s, at least 30s)"},
		"a short interval for retries":    {kustomization("shop", "interval: 1m, retryInterval: 5s"), "Kustomization shop/app (spec.retryInterval is 5s, at least 30s)"},
		"a long timeout":                  {kustomization("shop", "interval: 1m, timeout: 1h"), "Kustomization shop/app (spec.timeout is 1h0m0s, at most 15m0s)"},
		"a long wait":                     {kustomization("shop", "interval: 1h, wait: true"), "Kustomization shop/app (it needs spec.timeout, at most 15m0s)"},
		"a long interval without a wait":  {kustomization("shop", "interval: 1h"), ""},
		"an upgrade of a release":         {release("upgrade: {timeout: 20m}"), "HelmRelease shop/app (spec.upgrade.timeout is 20m0s, at most 15m0s)"},
		"the chart of a release":          {release("chart: {spec: {chart: app, interval: 1s, sourceRef: {kind: HelmRepository, name: app}}}"), "HelmRelease shop/app (spec.chart.spec.interval is 1s, at least 30s)"},
		"a Tenant with bounds of its own": {kustomization("shop", "interval: 10s") + bounds("{minInterval: 1s}"), ""},
		"a namespace of the platform":     {strings.Replace(kustomization("infra", "interval: 10s"), "serviceAccountName: shop", "serviceAccountName: tenure-root", 1), ""},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			dir := small(t, map[string]string{
				"clusters/one/tenants.yaml":  "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: tenants, namespace: flux-system}\nspec: {path: ./tenants, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}\n",
				"tenants/kustomization.yaml": "resources: [shop.yaml]\n",
				"tenants/shop.yaml":          tc.objects,
			})
			f, err := layout.Load(dir, "clusters/one", layout.Options{URL: "https://fleet.invalid"})
			if err != nil {
				t.Fatal(err)
			}
			plan, err := lockdown.Make(f, lockdown.Options{Tenants: true})
			if err != nil {
				t.Fatal(err)
			}
			notes := strings.Join(plan.Notes, "\n")
			if tc.want == "" && strings.Contains(notes, "tenure-bounds") || !strings.Contains(notes, tc.want) {
				t.Errorf("got the notes %q, want %q", notes, tc.want)
			}
		})
	}
}

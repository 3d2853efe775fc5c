package layout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKyverno(t *testing.T) {
	t.Parallel()
	const policy = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\n"
	artifact := func(spec string) string {
		return "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: k}\nspec: " + spec + "\n"
	}
	cases := map[string]struct {
		reason string
		file   string
		want   Kyverno
	}{
		"Nothing":     {"A name is no use of Kyverno.", "kind: Namespace\nmetadata: {name: kyverno}\n", Kyverno{}},
		"Policies":    {"The admin may have installed it by hand.", policy, Kyverno{Policies: true}},
		"NewPolicies": {"The newer kinds are in a group of their own.", "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\n", Kyverno{Policies: true}},
		"Artifact": {
			"The form of flux2-multi-tenancy.",
			artifact("{url: \"oci://ghcr.io/kyverno/manifests/kyverno\", ref: {tag: v1.14.4}, verify: {provider: cosign}}") + "---\n" + policy,
			Kyverno{Policies: true, Installed: true, Artifacts: []Artifact{{Tag: "v1.14.4", Verified: true}}},
		},
		"Range": {
			"The cluster chooses the tag.", artifact("{url: \"oci://ghcr.io/kyverno/manifests/kyverno\", ref: {semver: 1.x}}"),
			Kyverno{Installed: true, Artifacts: []Artifact{{}}},
		},
		"Chart": {
			"A release that pins the chart, in a namespace of its own.",
			"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: k, namespace: flux-system}\nspec: {targetNamespace: policy, chart: {spec: {chart: kyverno, version: 3.2.6}}}\n",
			Kyverno{Installed: true, Charts: []string{"3.2.6"}, Namespaces: []string{"policy"}},
		},
		"ChartRange": {
			"A release that takes the newest chart.",
			"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: k, namespace: kyverno}\nspec: {chart: {spec: {chart: kyverno, version: 3.x}}}\n",
			Kyverno{Installed: true, Charts: []string{""}, Namespaces: []string{"kyverno"}},
		},
		"ChartArtifact": {
			"The chart in a registry, and the release that refers to it.",
			artifact("{url: \"oci://ghcr.io/kyverno/charts/kyverno\", ref: {tag: 3.2.6}}") + "---\napiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: kyverno, namespace: kyverno}\nspec: {chartRef: {kind: OCIRepository, name: k}}\n",
			Kyverno{Installed: true, Charts: []string{"3.2.6"}, Namespaces: []string{"kyverno"}},
		},
		"OtherChart": {"A chart of another.", "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: kyverno-ui}\nspec: {chart: {spec: {chart: ui}}}\n", Kyverno{}},
		"Manifests": {
			"Manifests that were copied.",
			"apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {containers: [{image: \"ghcr.io/kyverno/kyverno:v1.14.4\"}]}}}\n",
			Kyverno{Installed: true},
		},
		"Broken": {"Another part reports the file.", "kyverno: [\n", Kyverno{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := Fleet{Dir: folder(t, map[string]string{"infrastructure/kyverno.yaml": tc.file})}
			if diff := cmp.Diff(tc.want, f.Kyverno()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestKyvernoOfAnotherRepository checks that the platform may install Kyverno from a second repository.
func TestKyvernoOfAnotherRepository(t *testing.T) {
	t.Parallel()
	f := Fleet{Dir: folder(t, map[string]string{"policies/p.yaml": "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\n"})}
	infra := folder(t, map[string]string{"kyverno.yaml": "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: k, namespace: kyverno}\nspec: {chart: {spec: {chart: kyverno, version: 3.7.1}}}\n"})
	want := Kyverno{Policies: true, Installed: true, Charts: []string{"3.7.1"}, Namespaces: []string{"kyverno"}}
	if diff := cmp.Diff(want, f.Kyverno(infra)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

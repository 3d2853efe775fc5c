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
			"The chart's own repository.", "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nspec: {url: \"https://kyverno.github.io/kyverno/\"}\n",
			Kyverno{Installed: true},
		},
		"ChartArtifact": {"The chart in a registry.", artifact("{url: \"oci://ghcr.io/kyverno/charts/kyverno\"}"), Kyverno{Installed: true}},
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

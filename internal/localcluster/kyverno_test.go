package localcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
)

// TestServeKyverno checks what the cluster installs and serves for each way in which a fleet
// gets Kyverno.
func TestServeKyverno(t *testing.T) {
	t.Parallel()
	const own = "https://kyverno.github.io/kyverno/"
	cases := map[string]struct {
		reason   string
		fleet    layout.Kyverno
		maps     []network.Map
		want     map[string]string // by address, the folder in the cluster's
		installs int
		step     string
	}{
		"Policies": {"Nothing else installs it.", layout.Kyverno{Policies: true}, nil, map[string]string{}, 1, "Kyverno v1.19.1"},
		"Artifact": {
			"The tag is the fleet's, or the version of the programs.",
			layout.Kyverno{Installed: true, Artifacts: []layout.Artifact{{Tag: "v1.14.4"}, {}}}, nil,
			map[string]string{"oci://ghcr.io/kyverno/manifests/kyverno:v1.14.4": "manifests", "oci://ghcr.io/kyverno/manifests/kyverno:v1.19.1": "manifests"}, 0,
			"Kyverno v1.19.1 (the fleet names v1.14.4)",
		},
		"Chart": {
			"The version is the fleet's, or the chart's own.",
			layout.Kyverno{Installed: true, Charts: []string{"3.2.6", ""}}, nil,
			map[string]string{
				"oci://ghcr.io/kyverno/charts/kyverno:3.2.6": "charts/3.2.6", "oci://ghcr.io/kyverno/charts/kyverno": "charts/newest",
				"https://kyverno.github.io/kyverno": "charts",
			}, 0, "Kyverno v1.19.1 (the fleet names chart 3.2.6)",
		},
		"Mapped": {
			"A folder of the user's is served.",
			layout.Kyverno{Installed: true, Charts: []string{""}}, []network.Map{{Kind: network.KindHelm, URL: own, Dir: "/own"}},
			map[string]string{own: "/own", "oci://ghcr.io/kyverno/charts/kyverno": "charts/newest"}, 0, "Kyverno v1.19.1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := t.TempDir()
			for file, content := range map[string]string{
				"kyverno-config/install-latest-testing.yaml":  "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: kyverno}\n",
				"kyverno-charts/kyverno/Chart.yaml":           "name: kyverno\nversion: 3.9.1\nappVersion: v1.19.1\ndependencies: [{name: crds}]\n",
				"kyverno-charts/kyverno/values.yaml":          "a: b\n",
				"kyverno-charts/kyverno/templates/x/a.yaml":   "",
				"kyverno-charts/kyverno/charts/crds/crd.yaml": "",
			} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(bin, file)), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(bin, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := &Cluster{Dir: t.TempDir(), opts: Options{BinDir: bin, Maps: tc.maps}, kyverno: &kyverno{Kyverno: tc.fleet, version: "v1.19.1"}}
			if err := c.serveKyverno(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := c.kyverno.describe(); got != tc.step {
				t.Errorf("%s: the step is %q, want %q", tc.reason, got, tc.step)
			}
			got := map[string]string{}
			for _, m := range c.opts.Maps {
				got[m.URL] = strings.TrimPrefix(m.Dir, filepath.Join(c.Dir, "kyverno")+"/")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if len(c.objects.kinds) != 1 || len(c.objects.system) != tc.installs {
				t.Errorf("%s: the cluster installs %d CRDs and %d objects, want 1 and %d", tc.reason, len(c.objects.kinds), len(c.objects.system), tc.installs)
			}
			for _, version := range tc.fleet.Charts {
				expectChart(t, filepath.Join(c.Dir, "kyverno", "charts"), version)
			}
		})
	}
}

// expectChart checks a copied chart: it has the version, its templates and no dependencies.
func expectChart(t *testing.T, charts, version string) {
	t.Helper()
	folder, want := version, "appVersion: v1.19.1\nname: kyverno\nversion: "+version+"\n"
	if version == "" {
		folder, want = "newest", "appVersion: v1.19.1\nname: kyverno\nversion: 3.9.1\n"
	}
	content, err := os.ReadFile(filepath.Join(charts, folder, "Chart.yaml"))
	if err != nil || string(content) != want {
		t.Errorf("the chart is %q, %v, want %q", content, err, want)
	}
	if _, err := os.Stat(filepath.Join(charts, folder, "templates", "x", "a.yaml")); err != nil {
		t.Errorf("the chart has no templates: %v", err)
	}
	if _, err := os.Stat(filepath.Join(charts, folder, "charts")); err == nil {
		t.Error("the chart has the charts that it depended on")
	}
}

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// unmappedApp returns an app of a public fleet: the Kustomization that applies its release, and a release
// with a chart from an address without a mapping, in one of three forms.
func unmappedApp(i int) string {
	name := fmt.Sprintf("app-%d", i)
	sources := []string{
		"apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {name: %[1]s, namespace: apps}\nspec: {interval: 1h, url: \"https://%[1]s.example.org/charts\"}\n",
		"apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {name: %[1]s, namespace: apps}\nspec: {interval: 1h, type: oci, url: \"oci://registry.example.org/%[1]s\"}\n",
		"apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: %[1]s, namespace: apps}\nspec: {interval: 1h, url: \"oci://registry.example.org/charts/%[1]s\", ref: {tag: 1.0.0}}\n",
	}
	chart := "chart: {spec: {chart: app, version: 1.x, sourceRef: {kind: HelmRepository, name: %[1]s}}}"
	if i%len(sources) == 2 {
		chart = "chartRef: {kind: OCIRepository, name: %[1]s}"
	}
	return fmt.Sprintf(sources[i%len(sources)]+"---\napiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: %[1]s, namespace: apps}\nspec: {interval: 1h, "+chart+"}\n", name)
}

// chartKinds is the folder crds of a chart, and widget an object of its kind.
const (
	chartKinds = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.charts.example.org}
spec:
  group: charts.example.org
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`
	widget = "apiVersion: charts.example.org/v1\nkind: Widget\nmetadata: {name: own, namespace: apps}\n"
)

// TestArtifactFleet checks a fleet without a FluxInstance whose root and tenant come from a registry
// with signatures, and whose sixty apps have charts from addresses without a map. The platform has an
// object of a kind that one of the charts would install: --crds gives its CRD.
func TestArtifactFleet(t *testing.T) {
	t.Parallel()
	const apps = 60
	dir, team, kinds := filepath.Join(t.TempDir(), "fleet"), filepath.Join(t.TempDir(), "team"), filepath.Join(t.TempDir(), "crds")
	files := map[string]string{
		"clusters/test/flux-system/gotk-components.yaml": "# put in place\n",
		"clusters/test/flux-system/kustomization.yaml":   "resources: [gotk-components.yaml, gotk-sync.yaml]\n",
		"clusters/test/flux-system/gotk-sync.yaml": `apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: flux-system, namespace: flux-system}
spec:
  interval: 1m
  url: oci://registry.example.com/acme/fleet
  ref: {tag: latest}
  secretRef: {name: flux-system}
  verify: {provider: cosign, matchOIDCIdentity: [{issuer: "^https://issuer.example.com$", subject: "^acme$"}]}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1m, retryInterval: 2s, path: ./clusters/test, prune: true, sourceRef: {kind: OCIRepository, name: flux-system}}
`,
		"clusters/test/apps.yaml": `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: flux-system}
spec: {interval: 1h, retryInterval: 5s, path: ./apps, prune: true, wait: true, sourceRef: {kind: OCIRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: after, namespace: flux-system}
spec: {interval: 1h, retryInterval: 5s, path: ./after, prune: true, dependsOn: [{name: apps}], sourceRef: {kind: OCIRepository, name: flux-system}}
`,
		"clusters/test/team.yaml": `apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: team, namespace: team}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: team, namespace: team}]
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: team, namespace: team}
spec: {interval: 1h, url: "oci://registry.example.com/acme/team", verify: {provider: cosign, secretRef: {name: cosign-key}}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: team, namespace: team}
spec: {interval: 1h, retryInterval: 5s, path: ./, prune: true, serviceAccountName: team, sourceRef: {kind: OCIRepository, name: team}}
`,
		"apps/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: apps}\n",
		"after/state.yaml":    configMap("state", "after"),
		"after/widget.yaml":   widget,
	}
	for i := range apps {
		files[fmt.Sprintf("apps/app-%d.yaml", i)] = unmappedApp(i)
	}
	writeFiles(t, dir, files)
	writeFiles(t, team, map[string]string{"kustomization.yaml": "resources: []\n"})
	writeFiles(t, kinds, map[string]string{"widgets.yaml": chartKinds})
	report, code, said := tenureVerify(t, "--fleet '"+dir+"' --path clusters/test --assume-unmapped --crds '"+kinds+"' --map 'oci://registry.example.com/acme/team:latest="+team+"'")
	if len(report.Clusters) > 0 {
		report.Read, report.Verdict, report.Assumed, report.Error = report.Clusters[0].Read, report.Clusters[0].Verdict, report.Clusters[0].Assumed, report.Clusters[0].Error
	}
	if report.Error != "" || len(report.NotReady) > 0 {
		t.Errorf("exit code %d; %s %v\n%s", code, report.Error, report.NotReady, said)
	}
	if report.Verdict == "safe" {
		t.Error("a verdict with objects that nobody looked at is safe")
	}
	var releases int
	var signatures []string
	for _, assumed := range report.Assumed {
		switch {
		case strings.HasPrefix(assumed, "HelmRelease/apps/app-"):
			releases++
		case strings.Contains(assumed, "signature"):
			signatures = append(signatures, assumed)
		case strings.HasPrefix(assumed, "Kustomization/"):
			t.Errorf("a Kustomization whose source is mapped is assumed: %s", assumed)
		}
	}
	slices.Sort(signatures)
	want := []string{"the signature of OCIRepository/flux-system/flux-system is not verified here", "the signature of OCIRepository/team/team is not verified here"}
	if diff := gocmp.Diff(want, signatures); diff != "" || releases != apps {
		t.Errorf("%d releases assumed, want %d; signatures (-want +got):\n%s\n%s", releases, apps, diff, said)
	}
	if report.Read == nil || len(report.Read.NotApplied) > 0 {
		t.Errorf("files of the cluster's folder that were not applied: %+v", report.Read)
	}
}

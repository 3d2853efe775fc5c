package localcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const versionedRoot = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {url: https://git.example.com/fleet, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec: {path: ./clusters/prod, sourceRef: {kind: GitRepository, name: flux-system}}
`

// loaded returns a cluster that has read a fleet with these files, and what it reported.
func loaded(t *testing.T, files map[string]string) (c *Cluster, reports *[]string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reports = &[]string{}
	c = &Cluster{opts: Options{Fleet: dir, Path: "clusters/prod", Report: func(err error) { *reports = append(*reports, err.Error()) }}}
	return c, reports, c.loadFleet()
}

// TestAlignVersion checks that another version of Flux is reported before anything starts, and that
// the programs get their own CRDs.
func TestAlignVersion(t *testing.T) {
	t.Parallel()
	components := string(config.FluxComponents())
	at := func(version string) string {
		old := strings.ReplaceAll(components, config.FluxVersion(), version)
		return strings.ReplaceAll(old, "\n    name: v1\n", "\n    name: v1beta2\n")
	}
	const file = "clusters/prod/flux-system/gotk-components.yaml"
	for name, tc := range map[string]struct {
		reason     string
		components string
		err        error
		report     string
		aligned    bool
	}{
		"same":        {"nothing to say", components, nil, "", false},
		"placeholder": {"the local cluster writes its own", "# a bootstrap writes this\n", nil, "", false},
		"older":       {"it runs, with the CRDs of the programs", at("v2.1.2"), nil, file + " has Flux v2.1.2", true},
		"too old":     {"its kinds are gone", at("v0.31.5"), errTooOld, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, reports, err := loaded(t, map[string]string{file: tc.components, "clusters/prod/flux-system/gotk-sync.yaml": versionedRoot})
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: %v, want %v", tc.reason, err, tc.err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), "v0.31.5") || !strings.Contains(err.Error(), "flux migrate") {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if got := strings.Join(*reports, "\n"); !strings.Contains(got, tc.report) || (got == "") != (tc.report == "") {
				t.Errorf("%s: reported %q, want %q", tc.reason, got, tc.report)
			}
			if !tc.aligned {
				return
			}
			objects, err := flux.ReadObjects(c.Fleet.Overlay[file])
			if err != nil {
				t.Fatal(err)
			}
			served := servedVersions(objects)[flux.OCIRepository.GroupVersionKind().GroupKind()]
			deployments := 0
			for _, u := range objects {
				if u.GetKind() == "Deployment" {
					deployments++
				}
			}
			if strings.Join(served, " ") != "v1" || deployments != 4 {
				t.Errorf("%s: OCIRepository is served in %v, and there are %d Deployments", tc.reason, served, deployments)
			}
		})
	}
}

// TestReportGone checks that objects in removed versions are named with their files.
func TestReportGone(t *testing.T) {
	t.Parallel()
	_, reports, err := loaded(t, map[string]string{
		"clusters/prod/flux-system/gotk-sync.yaml": versionedRoot,
		"clusters/prod/apps.yaml":                  "apiVersion: kustomize.toolkit.fluxcd.io/v1beta2\nkind: Kustomization\nmetadata: {name: apps, namespace: flux-system}\n",
		"teams/chart/templates/a.yaml":             "apiVersion: kustomize.toolkit.fluxcd.io/v1beta2\nkind: Kustomization\nmetadata:\n  {{- include \"labels\" . }}\n",
		"teams/chart/templates/b.yaml":             "{{- if .Values.a }}\napiVersion: source.toolkit.fluxcd.io/v1beta1\nkind: GitRepository\n{{- end }}\n",
		"teams/chart/templates/c.yaml":             "apiVersion: source.toolkit.fluxcd.io/v1beta1\nkind: GitRepository\nmetadata:\n  name: {{ .Values.a }}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(*reports, "\n"); !strings.Contains(got, "Kustomization apps v1beta2 (clusters/prod/apps.yaml), Kustomization v1beta2 (teams/chart/templates/a.yaml), GitRepository v1beta1 (teams/chart/templates/b.yaml) and 1 more; ") || !strings.Contains(got, "flux migrate") {
		t.Errorf("reported %q", got)
	}
}

// TestGoneInSets checks that the objects in templates of ResourceSets are named too.
func TestGoneInSets(t *testing.T) {
	t.Parallel()
	served := map[schema.GroupKind][]string{{Group: "source.toolkit.fluxcd.io", Kind: "OCIRepository"}: {"v1"}}
	const set = "apiVersion: fluxcd.controlplane.io/v1\nkind: ResourceSet\nmetadata: {name: teams, namespace: flux-system}\nspec:\n"
	const old = "apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: OCIRepository"
	for reason, spec := range map[string]string{
		"objects":           "  resources: [{" + old + ", metadata: {name: << inputs.tenant >>}}, {apiVersion: source.toolkit.fluxcd.io/v1, kind: OCIRepository}]\n",
		"templates in text": "  resourcesTemplate: |\n    ---\n    {" + old + "}\n    ---\n    {apiVersion: v1, kind: Secret}\n",
	} {
		if diff := cmp.Diff([]string{"OCIRepository v1beta2 of ResourceSet teams (teams.yaml)"}, goneIn("teams.yaml", []byte(set+spec), served)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

// TestAlignDistribution checks that a FluxInstance that pins another minor version runs with the
// local cluster's, in the served file as well, and that this is reported.
func TestAlignDistribution(t *testing.T) {
	t.Parallel()
	runs := strings.TrimPrefix(minor(config.FluxVersion()), "v")
	for version, changes := range map[string]bool{
		"2.x": false, runs + ".x": false, "v" + runs + ".1": false, ">=2.7.0": false, "*": false, "": false,
		"2.3.x": true, "=2.7.1": true, "~2.6.0": true, "2.8.*": true,
	} {
		var reports []string
		c := &Cluster{}
		c.opts.Report = func(err error) { reports = append(reports, err.Error()) }
		const text = "kind: FluxInstance\nspec:\n  distribution: {version: \"%s\", registry: ghcr.io/fluxcd}\n  other: {version: 1.0.0}\n"
		c.Fleet = testFleet(t, version, fmt.Sprintf(text, version))
		if err := c.alignDistribution(); err != nil {
			t.Errorf("version %q: %v", version, err)
		}
		got, _, _ := unstructured.NestedString(c.Fleet.Instance.Object, "spec", "distribution", "version")
		want, served := version, ""
		if changes {
			want, served = runs+".x", fmt.Sprintf(text, runs+".x")
		}
		if got != want || string(c.Fleet.Overlay["flux.yaml"]) != served || (len(reports) == 1) != changes {
			t.Errorf("version %q: the FluxInstance has %q, reported %q, served %q", version, got, reports, c.Fleet.Overlay["flux.yaml"])
		}
	}
	c := &Cluster{}
	c.Fleet = testFleet(t, "1.2.x", "")
	if err := c.alignDistribution(); !errors.Is(err, errTooOld) {
		t.Errorf("Flux 1: %v", err)
	}
}

func testFleet(t *testing.T, version, content string) *layout.Fleet {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "flux.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	instance := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"distribution": map[string]any{"version": version}}}}
	return &layout.Fleet{Dir: dir, Overlay: map[string][]byte{}, Instance: instance, InstanceFile: "flux.yaml"}
}

// TestControlPlaneOf checks which versions of Kubernetes run, with which program, and that the modules
// of the control plane build these versions.
func TestControlPlaneOf(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"": "tenure-cluster", KubernetesMinor: "tenure-cluster", "v" + KubernetesMinor + ".1": "tenure-cluster",
		"1.33": "tenure-cluster-1.33", "v1.33.7": "tenure-cluster-1.33", "v1.34.2": "tenure-cluster-1.34", "1.35": "tenure-cluster-1.35",
		"1.32": "", "v1.37.0": "", "1.3": "", "1.333": "", KubernetesMinor + "0": "",
	} {
		got, err := controlPlaneOf(version)
		if got != want || (err != nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "programs are Kubernetes "+KubernetesMinor+", and 1.33, 1.34, 1.35 on demand") {
			t.Errorf("version %q: %q, %v", version, got, err)
		}
	}
	modules := map[string]string{"go.mod": KubernetesMinor}
	for _, minor := range OtherKubernetes {
		modules["kubernetes-"+minor+".mod"] = minor
	}
	for file, minor := range modules {
		module, err := os.ReadFile("../../cluster/" + file)
		if err != nil || !strings.Contains(string(module), "\tk8s.io/kubernetes v"+minor+".") {
			t.Errorf("%s does not build Kubernetes %s: %v", file, minor, err)
		}
	}
}

// TestCompleteOtherVersion checks that objects are not assumed on a version that cannot suspend them.
func TestCompleteOtherVersion(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{
		"by name":  {Assume: []string{"GitRepository/apps/app"}},
		"unmapped": {AssumeUnmapped: true},
	} {
		opts.Kubernetes, opts.BinDir = "1.33", t.TempDir()
		c := &Cluster{opts: opts}
		if err := c.complete(); err == nil || !strings.Contains(err.Error(), "cannot run this fleet on Kubernetes 1.33: --assume") {
			t.Errorf("%s: got %v", name, err)
		}
		c.opts.Kubernetes = KubernetesMinor
		if err := c.complete(); !errors.Is(err, ErrMissingProgram) {
			t.Errorf("%s, on Kubernetes %s: got %v", name, KubernetesMinor, err)
		}
	}
}

// TestCheckPrograms checks that the program of another version is needed only for that version, and
// that the error says how to build it.
func TestCheckPrograms(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for _, name := range []string{"tenure", "tenure-cluster", "tenure-server", "tenure-flux"} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkPrograms(bin, "tenure-cluster", false); err != nil {
		t.Error(err)
	}
	err := checkPrograms(bin, "tenure-cluster-1.33", false)
	if !errors.Is(err, ErrMissingProgram) || !strings.Contains(err.Error(), "`make kubernetes VERSION=1.33`") {
		t.Errorf("got %v", err)
	}
}

package lockdown_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestFlagsOnce checks that each flag is there once, in whatever form the fleet sets it, and that
// the profile can be taken back.
func TestFlagsOnce(t *testing.T) {
	t.Parallel()
	const add = "- {op: add, path: /spec/template/spec/containers/0/args/-, value: "
	file := "patch.yaml"
	for reason, tc := range map[string]struct {
		files map[string]string
		// left are the flags that the profile leaves to the fleet.
		left string
	}{
		"nothing is set": {nil, ""},
		"patches by a label": {map[string]string{
			"kustomization.yaml":   system + "patches:\n- target: {kind: Deployment, labelSelector: app=kustomize-controller}\n  patch: |\n    " + add + "--no-cross-namespace-refs=true}\n    " + add + "--no-remote-bases=true}\n",
			"gotk-components.yaml": strings.Replace(components, "metadata: {", "metadata: {labels: {app: kustomize-controller}, ", 1),
		}, "kustomize-controller --no-cross-namespace-refs, kustomize-controller --no-remote-bases"},
		"a list of JSON patches": {map[string]string{
			"kustomization.yaml": system + "patchesJson6902:\n- target: {group: apps, version: v1, kind: Deployment, name: kustomize-controller}\n  path: " + file + "\n",
			file:                 add + "--default-service-account=default}\n",
		}, "kustomize-controller --default-service-account"},
		"a patch in a file": {map[string]string{
			"kustomization.yaml": system + "patches:\n- target: {kind: Deployment, name: (kustomize|helm)-controller}\n  path: " + file + "\n",
			file:                 add + "'--feature-gates=ExternalArtifact=true,DisableConfigWatchers=true'}\n",
		}, "kustomize-controller --feature-gates=ExternalArtifact, kustomize-controller --feature-gates=DisableConfigWatchers"},
		"Flux's manifests themselves, with the value apart": {map[string]string{
			"gotk-components.yaml": strings.Replace(components, "--log-level=info", "--no-remote-bases, --default-service-account, default", 1),
		}, "kustomize-controller --no-remote-bases, kustomize-controller --default-service-account"},
		"a strategic merge patch with all arguments": {map[string]string{
			"kustomization.yaml": system + "patchesStrategicMerge: [" + file + "]\n",
			file:                 strings.Replace(components, "args: [--log-level=info]", "args: [--no-cross-namespace-refs=true, --no-remote-bases=true, --default-service-account=default, '--feature-gates=ExternalArtifact=true,DisableConfigWatchers=true', --metrics-addr=$(TENURE_POD_NAME):8080]", 1),
		}, "kustomize-controller --no-cross-namespace-refs, kustomize-controller --no-remote-bases, kustomize-controller --metrics-addr, kustomize-controller --default-service-account, kustomize-controller --feature-gates=ExternalArtifact, kustomize-controller --feature-gates=DisableConfigWatchers"},
		"another value is replaced": {map[string]string{
			"gotk-components.yaml": strings.Replace(components, "--log-level=info", "--no-remote-bases=false", 1),
		}, ""},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			for name, content := range tc.files {
				files[folder+name] = content
			}
			dir := small(t, files)
			before := read(t, dir)
			plan := apply(t, dir, "clusters/one", lockdown.Options{Tenants: true})
			left := ""
			for _, note := range plan.Notes {
				if _, names, found := strings.Cut(note, "leaves them out: "); found {
					left, _, _ = strings.Cut(names, ";")
				}
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("what the profile leaves out (-want +got):\n%s", diff)
			}
			for _, name := range []string{"--no-cross-namespace-refs", "--no-remote-bases=true", "--default-service-account", "ExternalArtifact", "DisableConfigWatchers", "--metrics-addr=$(TENURE_POD_NAME):8080"} {
				flags := strings.Join(argumentsOf(t, dir), " ")
				if name == "--no-remote-bases=true" && !strings.Contains(flags, name) {
					name = "--no-remote-bases"
				}
				if n := strings.Count(flags, name); n != 1 {
					t.Errorf("%s is there %d times: %s", name, n, flags)
				}
			}
			if again := apply(t, dir, "clusters/one", lockdown.Options{Tenants: true}); len(again.Changes) > 0 {
				t.Errorf("again it changes\n%s", again.Diff())
			}
			back(t, dir, "clusters/one")
			if diff := cmp.Diff(before, read(t, dir)); diff != "" {
				t.Errorf("not all was taken out (-before +after):\n%s", diff)
			}
		})
	}
}

// argumentsOf returns the arguments of kustomize-controller in a built fleet.
func argumentsOf(t *testing.T, dir string) []string {
	t.Helper()
	built, err := flux.Build(dir, filepath.Join(dir, filepath.FromSlash(folder)))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range built {
		if o.GetName() == "kustomize-controller" && o.GetKind() == "Deployment" {
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			return args
		}
	}
	t.Fatal("kustomize-controller is not there")
	return nil
}

// TestArgumentsReplaced checks that a patch that replaces the arguments of the component is named.
func TestArgumentsReplaced(t *testing.T) {
	t.Parallel()
	dir := small(t, map[string]string{folder + "kustomization.yaml": system + "patches:\n- patch: |\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: kustomize-controller, namespace: flux-system}\n    spec: {template: {spec: {containers: [{name: manager, args: [--no-cross-namespace-refs=true]}]}}}\n"})
	f, err := layout.Load(dir, "clusters/one", layout.Options{URL: "https://fleet.invalid"})
	if err == nil {
		_, err = lockdown.Make(f, lockdown.Options{Tenants: true})
	}
	const want = "kustomize-controller --no-remote-bases: missing"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "replaces all arguments") || strings.Contains(err.Error(), "refs: missing") {
		t.Errorf("got error %v, want one with %q", err, want)
	}
}

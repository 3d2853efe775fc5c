package lockdown_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestArtifact builds the folder for kustomize with its components, and compares the objects with
// those of `tenure install` for the same options.
func TestArtifact(t *testing.T) {
	t.Parallel()
	const image = "registry.example.com/acme/tenure-server:v1.2.3"
	files, err := lockdown.Artifact(image)
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	for _, tt := range []struct {
		reason     string
		components []string
		options    lockdown.Options
	}{
		{reason: "no component"},
		{"the proxy", []string{"proxy"}, lockdown.Options{Proxy: &yes}},
		{"Capsule's kinds", []string{"capsule"}, lockdown.Options{Capsule: &yes}},
		{"defaults", []string{"defaults"}, lockdown.Options{Defaults: &yes}},
		{"shards", []string{"shards"}, lockdown.Options{Shards: []string{"gold"}}},
		{"the check", []string{"check"}, lockdown.Options{Check: &yes}},
		{"warn mode", []string{"warn"}, lockdown.Options{Warn: new(true)}},
		{
			"all components", []string{"proxy", "capsule", "defaults", "shards", "check", "warn"},
			lockdown.Options{Proxy: &yes, Capsule: &yes, Defaults: &yes, Shards: []string{"gold"}, Check: &yes, Warn: new(true)},
		},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			all := maps.Clone(files)
			// As kustomize-controller does it for spec.components.
			for _, name := range tt.components {
				if !strings.Contains(all["kustomization.yaml"], "components:") {
					all["kustomization.yaml"] += "components:\n"
				}
				all["kustomization.yaml"] += "  - components/" + name + "\n"
			}
			for name, content := range all {
				writeFile(t, filepath.Join(dir, filepath.FromSlash(name)), content)
			}
			got, err := flux.Build(dir, dir)
			if err != nil {
				t.Fatal(err)
			}
			tt.options.ManagerImage = image
			manifests, err := lockdown.Objects("flux-system", tt.options)
			if err != nil {
				t.Fatal(err)
			}
			want, err := flux.ReadObjects(manifests)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(byName(t, want), byName(t, got)); diff != "" {
				t.Errorf("-install +folder:\n%s", diff)
			}
			for _, o := range got {
				kept := o.GetAnnotations()["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
				if want := slices.Contains([]string{"CustomResourceDefinition", "TenancyProfile"}, o.GetKind()); kept != want {
					t.Errorf("%s is kept by Flux: %t, want %t", lockdown.ObjectName(o), kept, want)
				}
			}
		})
	}
}

// byName returns the content of objects by kind and name, without the annotation for Flux.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, o := range objects {
		o = o.DeepCopy()
		annotations := o.GetAnnotations()
		delete(annotations, "kustomize.toolkit.fluxcd.io/prune")
		if o.SetAnnotations(annotations); len(annotations) == 0 {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
		}
		name := o.GetKind() + " " + lockdown.ObjectName(o)
		if all[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		all[name] = o.Object
	}
	return all
}

// TestArtifactRelease builds the component that comes before the deletion: it changes the manager
// alone, as the chart's value does.
func TestArtifactRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := lockdown.Artifact("registry.example.com/x:v1")
	if err != nil {
		t.Fatal(err)
	}
	files["kustomization.yaml"] += "components: [components/capsule, components/release]\n"
	for name, content := range files {
		writeFile(t, filepath.Join(dir, filepath.FromSlash(name)), content)
	}
	objects, err := flux.Build(dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		strategy, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "strategy", "rollingUpdate")
		if !slices.Contains(args, "--release") || args[0] != "manager" || args[1] != "--capsule" || fmt.Sprint(strategy) != "map[maxSurge:0 maxUnavailable:1]" {
			t.Errorf("the manager has the arguments %q and the strategy %v", args, strategy)
		}
		return
	}
	t.Error("there is no Deployment")
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

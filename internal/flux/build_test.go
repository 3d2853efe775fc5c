package flux_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fluxcd/pkg/kustomize"
	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
)

// A kind that kustomize does not know, a patch of it, and a schema by which the patch
// is merged and not put in the place of what there was.
const (
	box    = "{apiVersion: example.com/v1, kind: Box, metadata: {name: box}, spec: {parts: [{id: a, size: 1}, {id: b, size: 1099511627776}]}}\n"
	change = "{apiVersion: example.com/v1, kind: Box, metadata: {name: box}, spec: {parts: [{id: b, size: 3}]}}\n"
	schema = `{"definitions": {"com.example.v1.Box": {
  "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Box"}],
  "properties": {"spec": {"type": "object", "properties": {"parts": {"type": "array", "items": {"type": "object"},
    "x-kubernetes-patch-merge-key": "id", "x-kubernetes-patch-strategy": "merge"}}}}}}}`
	patched = "resources: [box.yaml]\npatches: [{path: change.yaml}]\n"
)

// buildFiles are folders that are built one after the other.
var buildFiles = map[string]string{
	"plain/kustomization.yaml": "namePrefix: a-\nresources: [all.yaml]\npatches: [{path: change.yaml}]\n",
	"plain/all.yaml": `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {number: "1", text: "yes"}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, template: {spec: {containers: [{name: web, image: a, resources: {limits: {cpu: 0.5}}}]}}}}
`,
	"plain/change.yaml":         "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {containers: [{name: web, args: [b]}, {name: more, image: c}]}}}}\n",
	"custom/kustomization.yaml": patched, "custom/box.yaml": box, "custom/change.yaml": change,
	"schema/kustomization.yaml": patched + "openapi: {path: schema.json}\n", "schema/box.yaml": box, "schema/change.yaml": change, "schema/schema.json": schema,
	"nested/kustomization.yaml": "resources: [../schema]\n",
	"broken/kustomization.yaml": "resources: [nowhere.yaml]\nopenapi: {path: schema.json}\n", "broken/schema.json": schema,
}

// What is built is what Flux builds, whatever was built before: a schema that one
// kustomization brings is not the next one's.
func TestBuildIsFluxs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range buildFiles {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folders := []string{"plain", "custom", "schema", "custom", "nested", "custom", "broken", "custom", "plain"}
	want := map[string]string{}
	for _, folder := range folders {
		if _, known := want[folder]; known || folder == "broken" {
			continue
		}
		resources, err := kustomize.SecureBuild(dir, filepath.Join(dir, folder), false)
		if err != nil {
			t.Fatal(err)
		}
		manifests, err := resources.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		want[folder] = string(manifests)
	}
	if want["custom"] == want["schema"] {
		t.Fatal("the schema changes nothing, so that this shows nothing")
	}
	for i, folder := range folders {
		got, err := flux.Build(dir, filepath.Join(dir, folder))
		if folder == "broken" {
			if err == nil {
				t.Error("a missing file was built")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wanted, err := flux.ReadObjects([]byte(want[folder]))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("build %d, of %s, is not Flux's (-want +got):\n%s", i, folder, diff)
		}
	}
}

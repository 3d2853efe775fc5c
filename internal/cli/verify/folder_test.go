package verify

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

const (
	configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: a}\n"
	rootDir   = "clusters/staging"
)

func manifest(name string) string { return strings.ReplaceAll(configMap, "%s", name) }

// TestReadFolder checks that each manifest of the cluster's folder is applied or has a reason.
func TestReadFolder(t *testing.T) {
	t.Parallel()
	f := repository(t, map[string]string{
		"platform/clusters/staging/flux-system/kustomization.yaml": "resources: [gotk.yaml]\npatches: [{path: patch.yaml}]\n",
		"platform/clusters/staging/flux-system/gotk.yaml":          manifest("gotk"),
		"platform/clusters/staging/flux-system/patch.yaml":         manifest("any"),
		"platform/clusters/staging/flux-system/forgotten.yaml":     manifest("forgotten"),
		"platform/clusters/staging/one.yaml":                       manifest("one") + "---\n" + manifest("ignored"),
		"platform/clusters/staging/two.yml":                        manifest("two"),
		"platform/clusters/staging/README.md":                      "# no manifest",
		"platform/clusters/staging/team/kustomization.yaml":        "namePrefix: x-\nresources: [three.yaml, ../../../base]\nconfigMapGenerator: [{name: c, files: [k=values.yaml]}]\n",
		"platform/clusters/staging/team/three.yaml":                manifest("three"),
		"platform/clusters/staging/team/values.yaml":               "a: b\n",
		"platform/clusters/staging/team/four.yaml":                 manifest("four"),
		"platform/clusters/staging/broken/five.yaml":               manifest("five"),
		"platform/clusters/staging/broken/kustomization.yaml":      "resources: [five.yaml]\n",
		"platform/base/kustomization.yaml":                         "resources: [base.yaml]\n",
		"platform/base/base.yaml":                                  manifest("base"),
	})
	root := delivery{object: "Kustomization/flux-system/flux-system", path: rootDir, inventory: []string{"a_one__ConfigMap", "a_two__ConfigMap", "a_x-three__ConfigMap", "a_gotk__ConfigMap", "a_five__ConfigMap"}}
	read, err := readFolder(f, []delivery{{object: "the bootstrap", path: rootDir + "/flux-system"}, root})
	if err != nil {
		t.Fatal(err)
	}
	want := &folderRead{Files: 12, Objects: 9, Applied: 9, NotApplied: []notApplied{
		{rootDir + "/flux-system/forgotten.yaml", []string{"ConfigMap a/forgotten"}, "no Kustomization leads to it"},
		{rootDir + "/one.yaml", []string{"ConfigMap a/ignored"}, "it is not among what Kustomization/flux-system/flux-system applied: it may be ignored, patched away or left to others"},
		{rootDir + "/team/four.yaml", []string{"ConfigMap a/four"}, "no Kustomization leads to it"},
	}}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("what was read and what was applied (-want +got):\n%s", diff)
	}
	root.failed = "is not ready: no such file"
	read, err = readFolder(f, []delivery{root})
	if err != nil {
		t.Fatal(err)
	}
	if read.Applied != 0 || len(read.NotApplied) != read.Files || read.NotApplied[len(read.NotApplied)-1].Reason == "" {
		t.Errorf("what is not ready applied nothing: %+v", read)
	}
}

func TestNewDelivery(t *testing.T) {
	t.Parallel()
	condition := func(status, message string) map[string]any {
		return map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": status, "message": message}}}
	}
	for _, tc := range []struct {
		reason       string
		spec, status map[string]any
		path, failed string
	}{
		{"applied", map[string]any{"path": "./clusters/staging"}, condition("True", "applied"), "clusters/staging", ""},
		{"the whole repository", map[string]any{}, condition("True", "applied"), ".", ""},
		{"a path that would lead out", map[string]any{"path": "../../etc"}, condition("True", ""), "etc", ""},
		{"broken", map[string]any{"path": "a"}, condition("False", "no such file"), "a", "is not ready: no such file"},
		{"not looked at yet", map[string]any{"path": "a"}, nil, "a", "is not ready: says nothing"},
		{"suspended", map[string]any{"path": "a", "suspend": true}, condition("True", "applied"), "a", "is suspended"},
		{"assumed", map[string]any{"path": "a", "suspend": true}, condition("True", flux.AssumedMessage), "a", "is assumed to be ready, so it was not applied here"},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "k", "namespace": "n"}, "spec": tc.spec}}
		if tc.status != nil {
			u.Object["status"] = tc.status
		}
		got := newDelivery(u)
		if got.path != tc.path || got.failed != tc.failed || got.object != "Kustomization/n/k" {
			t.Errorf("%s: got %+v", tc.reason, got)
		}
	}
}

// TestReadFolderStaysInside checks that a link to a place outside the repository is not
// followed.
func TestReadFolderStaysInside(t *testing.T) {
	t.Parallel()
	f := repository(t, map[string]string{"platform/clusters/staging/kustomization.yaml": "resources: [link, ../../../outside.yaml]\n", "outside.yaml": manifest("outside")})
	if err := os.Symlink(f.Dir+"/..", f.Dir+"/clusters/staging/link"); err != nil {
		t.Fatal(err)
	}
	read, err := readFolder(f, []delivery{{object: "the bootstrap", path: rootDir}})
	if err != nil || read.Files != 1 || read.Objects != 0 {
		t.Errorf("got %+v and %v", read, err)
	}
}

func TestTextOfTheFolder(t *testing.T) {
	t.Parallel()
	f := attacked(catalog.Stopped)
	f.read = &folderRead{Files: 5, Objects: 9, Applied: 2, NotApplied: []notApplied{
		{"a.yaml", []string{"ConfigMap a/a"}, "no Kustomization leads to it"}, {"b.yaml", nil, "no Kustomization leads to it"}, {"c.yaml", []string{"Secret c"}, "it cannot be read"},
	}}
	var out bytes.Buffer
	if err := one(judgement{}, f).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	want := "! not applied: 3 of 5 files of clusters/staging\n  no Kustomization leads to it: a.yaml (ConfigMap a/a), b.yaml\n  it cannot be read: c.yaml (Secret c)\n"
	if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "read: 5 files of clusters/staging with 9 objects; 2 applied, 3 not\n") {
		t.Errorf("what was read is counted, and what was not applied is listed:\n%s", &out)
	}
}

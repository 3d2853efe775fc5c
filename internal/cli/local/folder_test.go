package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
)

const (
	configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: a}\n"
	rootDir   = "clusters/staging"
)

// repository creates files, and returns the fleet in the folder platform.
func repository(t *testing.T, content map[string]string) *layout.Fleet {
	t.Helper()
	top := t.TempDir()
	for name, text := range content {
		file := filepath.Join(top, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &layout.Fleet{Dir: filepath.Join(top, "platform"), Path: rootDir, System: rootDir + "/flux-system"}
}

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
		"platform/clusters/staging/package.json":                   `{"name": "x", "version": "1"}`,
		"platform/clusters/staging/left.json":                      `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "left", "namespace": "a"}}`,
		"platform/clusters/staging/team/used.json":                 `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "used", "namespace": "a"}}`,
		"platform/clusters/staging/README.md":                      "# no manifest",
		"platform/clusters/staging/team/kustomization.yaml":        "namePrefix: x-\nresources: [three.yaml, used.json, ../../../base]\nconfigMapGenerator: [{name: c, files: [k=values.yaml]}]\n",
		"platform/clusters/staging/team/three.yaml":                manifest("three"),
		"platform/clusters/staging/team/values.yaml":               "a: b\n",
		"platform/clusters/staging/team/four.yaml":                 manifest("four"),
		"platform/clusters/staging/broken/five.yaml":               manifest("five"),
		"platform/clusters/staging/broken/kustomization.yaml":      "resources: [five.yaml]\n",
		"platform/base/kustomization.yaml":                         "resources: [base.yaml]\n",
		"platform/base/base.yaml":                                  manifest("base"),
	})
	root := delivery{object: "Kustomization/flux-system/flux-system", path: rootDir, inventory: []string{"a_one__ConfigMap", "a_two__ConfigMap", "a_ignored-2__ConfigMap", "a_x-three__ConfigMap", "a_x-used__ConfigMap", "a_gotk__ConfigMap", "a_five__ConfigMap"}}
	read, err := readFolder(f, []delivery{{object: bootstrap, path: rootDir + "/flux-system", inventory: []string{"a_gotk__ConfigMap"}}, root})
	if err != nil {
		t.Fatal(err)
	}
	want := &FolderRead{Files: 14, Objects: 11, Applied: 10, NotApplied: []NotApplied{
		{rootDir + "/flux-system/forgotten.yaml", []string{"ConfigMap a/forgotten"}, "no applied Kustomization leads to it"},
		{rootDir + "/left.json", []string{"ConfigMap a/left"}, "no applied Kustomization leads to it"},
		{rootDir + "/one.yaml", []string{"ConfigMap a/ignored"}, "it is not among what Kustomization/flux-system/flux-system applied: it may be ignored, patched away or left to others"},
		{rootDir + "/team/four.yaml", []string{"ConfigMap a/four"}, "no applied Kustomization leads to it"},
	}}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("what was read and what was applied (-want +got):\n%s", diff)
	}
	root.failed = "is not ready: running health checks"
	whileFailing, err := readFolder(f, []delivery{root})
	if err != nil {
		t.Fatal(err)
	}
	want.NotApplied[2].Reason = "Kustomization/flux-system/flux-system is not ready: running health checks"
	if diff := cmp.Diff(want, whileFailing); diff != "" {
		t.Errorf("a Kustomization that is not ready may have applied objects (-want +got):\n%s", diff)
	}
	root.failed, root.inventory = "is not ready: no such file", nil
	read, err = readFolder(f, []delivery{root})
	if err != nil {
		t.Fatal(err)
	}
	if read.Applied != 0 || len(read.NotApplied) != read.Files || read.NotApplied[len(read.NotApplied)-1].Reason == "" {
		t.Errorf("what is not ready applied nothing: %+v", read)
	}
}

// TestReadFolderWithDeletions checks that an object that a patch deletes is not missing.
func TestReadFolderWithDeletions(t *testing.T) {
	t.Parallel()
	const deletes = "$patch: delete\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"
	inline := func(name string) string {
		return "patch: |\n    " + strings.ReplaceAll(strings.ReplaceAll(deletes, "%s", name), "\n", "\n    ") + "\n"
	}
	const system = "platform/clusters/staging/flux-system/"
	f := repository(t, map[string]string{
		system + "kustomization.yaml": "resources: [a.yaml]\ncomponents: [lockdown]\n",
		system + "a.yaml":             manifest("named") + "---\n" + manifest("role-one") + "---\n" + manifest("role-two") + "---\n" + manifest("file") + "---\n" + manifest("kept") + "---\n" + manifest("lost"),
		system + "lockdown/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n- " + inline("named") +
			"- target: {kind: ConfigMap, name: role-(one|two)}\n  " + inline("any") + "- path: file.yaml\n",
		system + "lockdown/file.yaml": strings.ReplaceAll(deletes, "%s", "file"),
	})
	all := []delivery{{object: bootstrap, path: rootDir + "/flux-system", inventory: []string{"a_kept__ConfigMap"}}}
	read, err := readFolder(f, all)
	if err != nil {
		t.Fatal(err)
	}
	want := []NotApplied{{rootDir + "/flux-system/a.yaml", []string{"ConfigMap a/lost"}, "it is not among what the bootstrap applied: it may be ignored, patched away or left to others"}}
	if diff := cmp.Diff(want, read.NotApplied); diff != "" {
		t.Errorf("only an object that no patch deletes is missing (-want +got):\n%s", diff)
	}
}

// TestReadFolderOfAnOperator checks that only the FluxInstance of its folder counts as applied
// if nothing else leads there, and that a ResourceSet without resources is listed.
func TestReadFolderOfAnOperator(t *testing.T) {
	t.Parallel()
	const object = "apiVersion: fluxcd.controlplane.io/v1\nkind: %s\nmetadata: {name: %s, namespace: flux-system}\n"
	f := repository(t, map[string]string{
		"platform/clusters/staging/flux-system/instance.yaml": fmt.Sprintf(object, "FluxInstance", "flux") + "---\n" + manifest("beside"),
		"platform/clusters/staging/flux-system/dropped.yaml":  manifest("dropped"),
		"platform/clusters/staging/sets/sets.yaml":            fmt.Sprintf(object, "ResourceSet", "teams") + "---\n" + fmt.Sprintf(object, "ResourceSet", "empty"),
		"platform/clusters/staging/sets/kustomization.yaml":   "resources: [sets.yaml]\n",
		"platform/clusters/staging/copy/rendered.yaml":        "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: lost}}]\n",
	})
	f.Sync.Namespace, f.InstanceFile = "flux-system", rootDir+"/flux-system/instance.yaml"
	f.Instance = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fluxcd.controlplane.io/v1", "kind": "FluxInstance", "metadata": map[string]any{"name": "flux", "namespace": "flux-system"},
	}}
	const set = "flux-system_%s_fluxcd.controlplane.io_ResourceSet"
	read, err := readFolder(f, append(installers(f, []*unstructured.Unstructured{f.Instance}),
		delivery{object: "Kustomization/flux-system/sets", path: rootDir + "/sets", inventory: []string{fmt.Sprintf(set, "teams"), fmt.Sprintf(set, "empty")}},
		delivery{object: "Kustomization/flux-system/copy", path: rootDir + "/copy", inventory: []string{"a_other__ConfigMap"}},
		delivery{object: "ResourceSet/flux-system/teams", inventory: []string{"a_beside__ConfigMap"}},
		delivery{object: "ResourceSet/flux-system/empty", inventory: []string{}},
	))
	if err != nil {
		t.Fatal(err)
	}
	want := &FolderRead{Files: 5, Objects: 6, Applied: 2, NotApplied: []NotApplied{
		{rootDir + "/copy/rendered.yaml", []string{"ConfigMap lost"}, "it is not among what Kustomization/flux-system/copy applied: it may be ignored, patched away or left to others"},
		{rootDir + "/flux-system/dropped.yaml", []string{"ConfigMap a/dropped"}, "no applied Kustomization leads to it"},
		{rootDir + "/sets/sets.yaml", []string{"its resources"}, "ResourceSet/flux-system/empty applied nothing: it may have no inputs"},
	}}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("what was read and what was applied (-want +got):\n%s", diff)
	}
}

// TestInstallers checks that a bootstrap applies the system folder, and the file of roots that are
// elsewhere.
func TestInstallers(t *testing.T) {
	t.Parallel()
	f := repository(t, map[string]string{
		"platform/clusters/staging/flux-system/gotk.yaml":  manifest("gotk"),
		"platform/clusters/staging/flux-system/other.yaml": manifest("other"),
		"platform/clusters/staging/config/root.yaml":       manifest("root"),
		"platform/clusters/staging/config/beside.yaml":     manifest("beside"),
	})
	f.RootFile = rootDir + "/config/root.yaml"
	object := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "a"}}}
	}
	read, err := readFolder(f, installers(f, []*unstructured.Unstructured{object("gotk"), object("root"), object("beside")}))
	if err != nil {
		t.Fatal(err)
	}
	var dropped []string
	for _, n := range read.NotApplied {
		dropped = append(dropped, n.File)
	}
	if diff := cmp.Diff([]string{rootDir + "/config/beside.yaml", rootDir + "/flux-system/other.yaml"}, dropped); diff != "" {
		t.Errorf("not applied (-want +got):\n%s", diff)
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
		{"broken after it applied others", map[string]any{"path": "a"}, condition("False", "no such file\nNamespace/a created"), "a", "is not ready: no such file"},
		{"not looked at yet", map[string]any{"path": "a"}, nil, "a", "is not ready: says nothing"},
		{"suspended", map[string]any{"path": "a", "suspend": true}, condition("True", "applied"), "a", "is suspended"},
		{"assumed", map[string]any{"path": "a", "suspend": true}, condition("True", flux.AssumedMessage), "a", "is assumed to be ready, so it was not applied here"},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"kind": "Kustomization", "metadata": map[string]any{"name": "k", "namespace": "n"}, "spec": tc.spec}}
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

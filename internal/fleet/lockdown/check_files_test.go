package lockdown

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
)

// TestLocate checks which files of a fleet a failed check names.
func TestLocate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sync := func(folder string) string {
		return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: flux-system, namespace: flux-system}\nspec: {path: ./" + folder + ", sourceRef: {kind: GitRepository, name: flux-system}}\n---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: flux-system, namespace: flux-system}\nspec: {url: https://git.example.com/acme/fleet}\n"
	}
	for name, content := range map[string]string{
		"clusters/staging/flux-system/gotk-sync.yaml":    sync("clusters/staging"),
		"clusters/production/flux-system/gotk-sync.yaml": sync("clusters/production"),
		"clusters/staging/apps.yaml":                     "# ours\nkind: Namespace\nmetadata: {name: apps}\n---\nkind: Namespace\nmetadata: {name: tools}\n",
		"clusters/production/apps.yaml":                  "kind: Namespace\nmetadata: {name: apps}\n",
		"tenants/shop/rbac.yaml":                         "kind: RoleBinding\nmetadata: {name: reconciler}\n",
		"tenants/shop/kustomization.yaml":                "namespace: shop\nresources: [rbac.yaml]\n",
		"tenants/toys/rbac.yaml":                         "kind: RoleBinding\nmetadata: {name: reconciler}\n",
		"tenants/toys/kustomization.yaml":                "namespace: toys\nresources: [rbac.yaml]\n",
		"tenants/broken.yaml":                            "kind: [",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	results := []Result{
		failed("the line of the document, in the folder of this cluster", "").about("Namespace apps"),
		failed("a later document", "").about("Namespace tools is of nobody"),
		failed("the kustomization of the folder has the namespace", "").about("RoleBinding toys/reconciler: gives rights"),
		failed("several objects", "").about("RoleBinding toys/reconciler", "Namespace apps"),
		failed("an object that the fleet does not have", "").about("Namespace other"),
		failed("no object", ""),
		good("a check that passed", "").about("Namespace apps"),
	}
	want := [][]string{
		{"clusters/staging/apps.yaml:1"}, {"clusters/staging/apps.yaml:5"}, {"tenants/toys/rbac.yaml:1"},
		{"tenants/toys/rbac.yaml:1", "clusters/staging/apps.yaml:1"}, nil, nil, nil,
	}
	Locate(&layout.Fleet{Dir: dir, Path: "clusters/staging"}, results)
	for i, r := range results {
		if diff := cmp.Diff(want[i], r.Files); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.Name, diff)
		}
	}
}

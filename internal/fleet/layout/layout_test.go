package layout

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: source-controller, namespace: flux-system}
`
	rootSync = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec:
  url: ssh://git@git.example.com/acme/fleet
  secretRef: {name: flux-system}
  ref: {branch: main}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec:
  path: ./clusters/staging
  sourceRef: {kind: GitRepository, name: flux-system}
`
	kustomization = `resources: [gotk-components.yaml, gotk-sync.yaml]
`
)

// folder writes files into a new folder and returns it.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoad(t *testing.T) {
	t.Parallel()
	const system = "clusters/staging/flux-system/"
	written := Sync{
		Kind: gitRepository, URL: "ssh://git@git.example.com/acme/fleet", Branch: "main", Namespace: "flux-system",
		Source: "flux-system", Kustomization: "flux-system", SecretRef: "flux-system",
	}
	generated := Sync{
		Kind: gitRepository,
		URL:  "https://git.example.com/x", Branch: "trunk", Namespace: "flux-system",
		Source: "flux-system", Kustomization: "flux-system",
	}
	for name, tc := range map[string]struct {
		reason  string
		files   map[string]string
		system  string
		sync    Sync
		overlay []string
	}{
		"bootstrapped": {
			reason: "a fleet that holds Flux's manifests is taken as it is",
			files: map[string]string{
				system + "gotk-components.yaml": deployment, system + "gotk-sync.yaml": rootSync, system + "kustomization.yaml": kustomization,
			},
			system: "clusters/staging/flux-system", sync: written,
		},
		"short ending": {
			reason: "the root objects may be in a file that ends in .yml",
			files: map[string]string{
				system + "gotk-components.yaml": deployment, system + "root.yml": rootSync, system + "kustomization.yaml": "resources: [gotk-components.yaml, root.yml]\n",
			},
			system: "clusters/staging/flux-system", sync: written,
		},
		"placeholder": {
			reason: "a file of comments is a placeholder for Flux's manifests",
			files: map[string]string{
				system + "gotk-components.yaml": "# later\n", system + "gotk-sync.yaml": rootSync, system + "kustomization.yaml": kustomization,
			},
			system: "clusters/staging/flux-system", sync: written, overlay: []string{system + "gotk-components.yaml"},
		},
		"unlisted": {
			reason: "a kustomization that does not list the components is completed",
			files: map[string]string{
				system + "gotk-sync.yaml": rootSync, system + "kustomization.yaml": "resources: [gotk-sync.yaml]\n",
			},
			system: "clusters/staging/flux-system", sync: written,
			overlay: []string{system + "gotk-components.yaml", system + "kustomization.yaml"},
		},
		"unlisted, another name": {
			reason: "the kustomization file may have each of the names that kustomize knows, and a folder has one",
			files: map[string]string{
				system + "gotk-sync.yaml": rootSync, system + "Kustomization": "resources: [gotk-sync.yaml]\n",
			},
			system: "clusters/staging/flux-system", sync: written,
			overlay: []string{system + "gotk-components.yaml", system + "Kustomization"},
		},
		"base by a short ending": {
			reason: "a kustomization.yml may name the base with Flux's manifests",
			files: map[string]string{
				system + "kustomization.yml":               "resources: [../../../infrastructure/flux]\n",
				"infrastructure/flux/gotk-components.yaml": deployment, "infrastructure/flux/gotk-sync.yaml": rootSync,
				"infrastructure/flux/kustomization.yml": kustomization,
			},
			system: "clusters/staging/flux-system", sync: written,
		},
		"empty": {
			reason: "a cluster's folder without anything of Flux gets all of it",
			files:  map[string]string{"clusters/staging/apps.yaml": "kind: ConfigMap\n"},
			system: "clusters/staging/flux-system", sync: generated,
			overlay: []string{system + "gotk-components.yaml", system + "gotk-sync.yaml", system + "kustomization.yaml"},
		},
		"artifact": {
			reason: "a root OCIRepository with the default tag",
			files: map[string]string{
				system + "gotk-components.yaml": deployment, system + "kustomization.yaml": kustomization,
				system + "gotk-sync.yaml": strings.NewReplacer("GitRepository", "OCIRepository", "ssh://git@git.example.com/acme", "oci://images.example.com", "  ref: {branch: main}\n", "").Replace(rootSync),
			},
			system: "clusters/staging/flux-system",
			sync: Sync{
				Kind: ociRepository, URL: "oci://images.example.com/fleet", Branch: "latest", Namespace: "flux-system",
				Source: "flux-system", Kustomization: "flux-system", SecretRef: "flux-system",
			},
		},
		"range of tags": {
			reason: "a root OCIRepository that selects no tag by its name, and a source of another kind with the name",
			files: map[string]string{
				system + "gotk-components.yaml": deployment, system + "kustomization.yaml": kustomization,
				system + "gotk-sync.yaml": "kind: Bucket\nmetadata: {name: flux-system}\n---\n" + strings.NewReplacer("GitRepository", "OCIRepository", "{branch: main}", "{semver: 1.x}").Replace(rootSync),
			},
			system: "clusters/staging/flux-system",
			sync: Sync{
				Kind: ociRepository, URL: "ssh://git@git.example.com/acme/fleet", Namespace: "flux-system",
				Source: "flux-system", Kustomization: "flux-system", SecretRef: "flux-system",
			},
		},
		"patches": {
			reason: "a file with the operations of a JSON patch has no objects",
			files: map[string]string{
				system + "gotk-components.yaml": deployment, system + "gotk-sync.yaml": rootSync, system + "kustomization.yaml": kustomization,
				system + "lockdown.yaml": "# flags\n---\n- {op: add, path: /spec/template/spec/containers/0/args/-, value: --no-remote-bases=true}\n",
			},
			system: "clusters/staging/flux-system", sync: written,
		},
		"elsewhere": {
			reason: "the system folder is where the files with the known names are",
			files: map[string]string{
				"clusters/staging/flux/gotk-components.yaml": deployment, "clusters/staging/flux/gotk-sync.yaml": rootSync,
				"clusters/staging/flux/kustomization.yaml": kustomization,
			},
			system: "clusters/staging/flux", sync: written,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := Load(folder(t, tc.files), "./clusters/staging/", Options{
				URL: "https://git.example.com/x", Branch: "trunk", Components: []byte(deployment),
			})
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.sync, f.Sync); diff != "" {
				t.Errorf("%s: sync (-want +got):\n%s", tc.reason, diff)
			}
			if f.System != tc.system {
				t.Errorf("%s: system folder %q, want %q", tc.reason, f.System, tc.system)
			}
			want := map[string]bool{}
			for _, file := range tc.overlay {
				want[file] = true
			}
			got := map[string]bool{}
			for file := range f.Overlay {
				got[file] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: overlay (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The flags are in Flux's manifests, in their placeholder with its patches, in patches of any file, or nowhere.
func TestFlagsUnknown(t *testing.T) {
	t.Parallel()
	const system = "clusters/staging/flux-system/"
	for reason, tc := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"nothing of Flux":                        {map[string]string{"clusters/staging/apps.yaml": "kind: ConfigMap\n"}, true},
		"the root alone":                         {map[string]string{system + "gotk-sync.yaml": rootSync}, true},
		"a placeholder, which a bootstrap fills": {map[string]string{system + "gotk-components.yaml": "# later\n", system + "kustomization.yaml": kustomization}, false},
		"Flux's manifests":                       {map[string]string{system + "gotk-components.yaml": deployment, system + "gotk-sync.yaml": rootSync}, false},
		"patches of a Flux that updates itself":  {map[string]string{"clusters/staging/flux.yaml": "spec:\n  patches:\n  - patch: '[]'\n    target: {kind: Deployment, name: kustomize-controller}\n"}, false},
		"a chart of Flux":                        {map[string]string{"clusters/staging/flux.yaml": "kind: HelmRelease\nspec: {chart: {spec: {chart: flux2, version: 2.x}}}\n"}, false},
		"Flux's manifests in a base": {map[string]string{
			"clusters/staging/kustomization.yaml": "resources: [../../apps/flux]\n",
			"apps/flux/kustomization.yaml":        kustomization, "apps/flux/gotk-components.yaml": deployment, "apps/flux/gotk-sync.yaml": rootSync,
		}, false},
		"Flux's manifests of another cluster": {map[string]string{
			"clusters/staging/kustomization.yaml": "resources: []\n", "apps/flux/kustomization.yaml": kustomization, "apps/flux/gotk-components.yaml": deployment, "apps/flux/gotk-sync.yaml": rootSync,
		}, true},
		"an account of Flux": {map[string]string{"clusters/staging/apps.yaml": "kind: Kustomization\nspec: {serviceAccountName: kustomize-controller}\n"}, true},
	} {
		f, err := Load(folder(t, tc.files), "clusters/staging", Options{URL: "https://git.example.com/x", Branch: "main", Components: []byte(deployment)})
		if err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		if f.FlagsUnknown != tc.want {
			t.Errorf("%s: flags unknown %t, want %t", reason, f.FlagsUnknown, tc.want)
		}
	}
}

// TestLoadOfItsOwnOverlay checks that Load reads its own overlay like files of a bootstrap.
func TestLoadOfItsOwnOverlay(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"clusters/staging/apps.yaml": "kind: ConfigMap\n"})
	opts := Options{URL: "https://git.example.com/x", Branch: "trunk", Components: []byte(deployment)}
	first, err := Load(dir, "clusters/staging", opts)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for name, content := range first.Overlay {
		files[name] = string(content)
	}
	second, err := Load(folder(t, files), "clusters/staging", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Sync, second.Sync); diff != "" {
		t.Errorf("sync (-first +second):\n%s", diff)
	}
	if len(second.Overlay) != 0 {
		t.Errorf("the second load put %d files in place", len(second.Overlay))
	}
}

// TestLoadOfACompletedBase checks that an overlay, a component, a patch and a variable may complete
// the root: in the system folder, and in the cluster's folder.
func TestLoadOfACompletedBase(t *testing.T) {
	t.Parallel()
	want := Sync{
		Kind: gitRepository, URL: "https://git.example.com/acme/fleet-staging", Branch: "release", Namespace: "flux-system",
		Source: "flux-system", Kustomization: "flux-system", SecretRef: "flux-system",
	}
	base := strings.NewReplacer("ssh://git@git.example.com/acme/fleet", "https://git.example.com/acme/fleet-${cluster}", "./clusters/staging", "./clusters/unset").Replace(rootSync)
	files := map[string]string{
		"base/kustomization.yaml":       kustomization,
		"base/gotk-sync.yaml":           base,
		"base/gotk-components.yaml":     "# put in place\n",
		"components/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{target: {kind: GitRepository}, patch: '- {op: replace, path: /spec/ref/branch, value: \"${branch:=release}\"}'}]\n",
	}
	const overlay = `resources: [%s]
components: [%s]
patches:
  - target: {kind: Kustomization}
    patch: |
      apiVersion: kustomize.toolkit.fluxcd.io/v1
      kind: Kustomization
      metadata: {name: flux-system}
      spec: {path: ./clusters/staging, postBuild: {substitute: {cluster: staging}}}
`
	for name, tc := range map[string]struct {
		files map[string]string
		roots int
	}{
		"System":                         {map[string]string{"clusters/staging/flux-system/kustomization.yaml": fmt.Sprintf(overlay, "../../../base", "../../../components")}, 0},
		"Cluster":                        {map[string]string{"clusters/staging/kustomization.yaml": fmt.Sprintf(overlay, "../../other", "../../components"), "other/kustomization.yaml": "resources: [root.yaml]\n", "other/root.yaml": base}, 2},
		"Cluster, with Flux's manifests": {map[string]string{"clusters/staging/kustomization.yaml": fmt.Sprintf(overlay, "../../base", "../../components")}, 2},
	} {
		all := maps.Clone(files)
		maps.Copy(all, tc.files)
		f, err := Load(folder(t, all), "clusters/staging", Options{URL: "https://git.example.com/invented", Components: []byte(deployment)})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, f.Sync); diff != "" || len(f.Roots) != tc.roots {
			t.Errorf("%s: %d roots, sync (-want +got):\n%s", name, len(f.Roots), diff)
		}
		for _, root := range f.Roots {
			if url, found, _ := unstructured.NestedString(root.Object, "spec", "url"); found && url != want.URL {
				t.Errorf("%s: the root source fetches %s", name, url)
			}
		}
	}
}

func TestOptional(t *testing.T) {
	t.Parallel()
	optional := []Optional{
		{Group: "image.toolkit.fluxcd.io", Manifests: []byte("images")},
		{Group: "source.extensions.fluxcd.io", Manifests: []byte("generators")},
	}
	const image = "apiVersion: image.toolkit.fluxcd.io/v1\nkind: ImageRepository\n"
	for name, tc := range map[string]struct {
		reason, file, content, want string
	}{
		"none":        {"nobody pays for what the fleet does not use", "apps.yaml", "kind: ConfigMap\n", "base"},
		"image":       {"a tenant's folder counts too", "tenants/dev/image.yml", image, "base\n---\nimages"},
		"generator":   {"each group brings its own manifests", "a.yaml", "apiVersion: source.extensions.fluxcd.io/v1beta1\n", "base\n---\ngenerators"},
		"another":     {"a group whose name begins alike is another one", "a.yaml", "apiVersion: image.toolkit.fluxcd.io.example.com/v1\n", "base"},
		"JSON":        {"so does an object in quotes", "a.yaml", `{"apiVersion": "source.extensions.fluxcd.io/v1beta1"}`, "base\n---\ngenerators"},
		"a rule":      {"a rule about the group asks for nothing", "policies.yaml", "expression: has(object.metadata.annotations['source.extensions.fluxcd.io/any'])\n", "base"},
		"no manifest": {"documentation asks for nothing", "README.md", image, "base"},
		"history":     {"what git keeps asks for nothing", ".git/image.yaml", image, "base"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, map[string]string{"clusters/staging/apps.yaml": "kind: ConfigMap\n", tc.file: tc.content})
			f, err := Load(dir, "clusters/staging", Options{URL: "u", Components: []byte("base"), Optional: optional})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(f.Overlay["clusters/staging/flux-system/gotk-components.yaml"]); got != tc.want {
				t.Errorf("%s: components: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

// TestLoadOfABase checks that the root may be declared in a base of the cluster's folder.
func TestLoadOfABase(t *testing.T) {
	t.Parallel()
	f, err := Load(folder(t, map[string]string{
		"clusters/staging/flux-system/kustomization.yaml": "resources: [../../../apps/overlay]\n",
		"apps/overlay/kustomization.yaml":                 "resources: [../base, ../../../elsewhere]\n",
		"apps/base/kustomization.yaml":                    kustomization,
		"apps/base/gotk-sync.yaml":                        rootSync,
		"apps/base/gotk-components.yaml":                  "# put in place\n",
	}), "clusters/staging", Options{Components: []byte(deployment)})
	if err != nil {
		t.Fatal(err)
	}
	if f.System != "clusters/staging/flux-system" || f.Sync.URL != "ssh://git@git.example.com/acme/fleet" {
		t.Errorf("the folder to build is %s, and the root fetches %q", f.System, f.Sync.URL)
	}
	if diff := cmp.Diff(map[string][]byte{"apps/base/gotk-components.yaml": []byte(deployment)}, f.Overlay); diff != "" {
		t.Errorf("Flux's manifests take the place of those in the base (-want +got):\n%s", diff)
	}
}

// TestLoadOfAnArtifact checks the root that is written for a fleet without one, if --map gives the
// fleet the address of an OCI artifact, and that Load reads it like a file of the fleet.
func TestLoadOfAnArtifact(t *testing.T) {
	t.Parallel()
	opts := Options{URL: "oci://images.example.com/fleet:v1", Branch: "main", Components: []byte(deployment)}
	first, err := Load(folder(t, map[string]string{"clusters/staging/apps.yaml": "kind: ConfigMap\n"}), "clusters/staging", opts)
	if err != nil {
		t.Fatal(err)
	}
	want := Sync{Kind: ociRepository, URL: "oci://images.example.com/fleet", Branch: "v1", Namespace: "flux-system", Source: "flux-system", Kustomization: "flux-system"}
	if diff := cmp.Diff(want, first.Sync); diff != "" {
		t.Errorf("sync (-want +got):\n%s", diff)
	}
	files := map[string]string{}
	for name, content := range first.Overlay {
		files[name] = string(content)
	}
	second, err := Load(folder(t, files), "clusters/staging", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, second.Sync); diff != "" {
		t.Errorf("sync of the second load (-want +got):\n%s", diff)
	}
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	bucket := folder(t, map[string]string{"clusters/staging/flux-system/gotk-sync.yaml": strings.ReplaceAll(rootSync, "GitRepository", "Bucket")})
	broken := folder(t, map[string]string{"clusters/staging/flux-system/gotk-sync.yaml": "kind: [\n"})
	empty := folder(t, map[string]string{"clusters/staging/a.yaml": "", "clusters/production/flux-system/gotk-sync.yaml": strings.ReplaceAll(rootSync, "staging", "production")})
	alone := folder(t, map[string]string{"clusters/staging/a.yaml": ""})
	rootless := folder(t, map[string]string{"clusters/staging/flux-system/gotk-sync.yaml": "# nothing\n"})
	for _, tc := range []struct {
		reason, dir, path, want string
		is                      error
	}{
		{reason: "no folder", dir: "/does/not/exist", path: "clusters/staging", is: ErrNotFound, want: "/does/not/exist"},
		{reason: "no path", dir: empty, path: "clusters/stagin", is: ErrNotFound, want: "it has --path clusters/production"},
		{reason: "path leads out", dir: empty, path: "../..", want: "leads out of it"},
		{reason: "a folder that is no cluster's", dir: empty, path: "clusters/staging", want: "it has --path clusters/production"},
		{reason: "no address", dir: alone, path: "clusters/staging", want: "--map URL#BRANCH="},
		{reason: "no file of the root", dir: alone, path: "clusters/staging", want: "clusters/staging/flux-system/gotk-sync.yaml is missing, and in the repository no Kustomization"},
		{reason: "a file without the root", dir: rootless, path: "clusters/staging", want: "clusters/staging/flux-system/gotk-sync.yaml has no source and no Kustomization"},
		{reason: "a root that is not served", dir: bucket, path: "clusters/staging", want: "the root Bucket flux-system/flux-system is a source that the local cluster cannot serve"},
		{reason: "not YAML", dir: broken, path: "clusters/staging", want: "clusters/staging/flux-system/gotk-sync.yaml"},
	} {
		_, err := Load(tc.dir, tc.path, Options{})
		if err == nil || !strings.Contains(err.Error(), tc.want) || (tc.is != nil && !errors.Is(err, tc.is)) {
			t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(rootSync))
	f.Add([]byte("---\n---\n# nothing\n"))
	f.Add([]byte("kind: Kustomization\nspec: [1]\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		objects, err := parse(content)
		if err != nil {
			return
		}
		for _, u := range objects {
			if u.GetKind() == "" {
				t.Errorf("an object without a kind came out of %q", content)
			}
		}
		// findSync must not panic, whatever the shape of the objects.
		_, _ = findSync(objects, "clusters/staging")
	})
}

package layout

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFluxInstance(t *testing.T) {
	t.Parallel()
	const instance = `apiVersion: v1
kind: Namespace
metadata: {name: flux-system}
---
apiVersion: fluxcd.controlplane.io/v1
kind: FluxInstance
metadata: {name: flux}
spec:
  sync: {kind: GitRepository, url: "https://git.example.com/fleet", ref: refs/heads/main, path: ./clusters/prod, pullSecret: key}
`
	const file = "clusters/prod/flux-system/flux.yml"
	git := Sync{Kind: "GitRepository", URL: "https://git.example.com/fleet", Branch: "main", Namespace: "flux-system", Source: "flux-system", Kustomization: "flux-system", SecretRef: "key"}
	oci := git
	oci.Kind, oci.URL, oci.Branch, oci.Source, oci.Kustomization = "OCIRepository", "oci://images.example.com/fleet", "latest", "fleet", "fleet"
	for name, tc := range map[string]struct {
		reason, file, content string
		want                  Sync
		err                   string
	}{
		"Git":       {"a FluxInstance behind another object", file, instance, git, ""},
		"OCI":       {"a sync from an OCI artifact, with a name", file, strings.NewReplacer("GitRepository", "OCIRepository, name: fleet", "https://git.example.com", "oci://images.example.com", "refs/heads/main", "latest").Replace(instance), oci, ""},
		"Bucket":    {"a source that the local cluster cannot serve", file, strings.ReplaceAll(instance, "GitRepository", "Bucket"), Sync{}, `cannot serve a source of kind "Bucket"`},
		"Tag":       {"a reference that is no branch", file, strings.ReplaceAll(instance, "heads/main", "tags/v1"), Sync{}, "its spec.sync.ref is refs/tags/v1"},
		"Path":      {"the folder of another cluster", file, strings.ReplaceAll(instance, "path: ./clusters/prod", "path: clusters/staging"), Sync{}, "give --path clusters/staging"},
		"Name":      {"a name that flux-operator ignores", file, strings.ReplaceAll(instance, "{name: flux}", "{name: prod}"), Sync{}, "reconciles only the name flux"},
		"NoSync":    {"nothing says where the fleet is", file, instance[:strings.Index(instance, "spec:")], Sync{}, "it has no spec.sync"},
		"Elsewhere": {"a FluxInstance that an admin applies by hand from another folder", "bootstrap/flux.yaml", instance, git, ""},
		"Values":    {"the values of the chart flux-instance", "apps/flux/values.yaml", strings.ReplaceAll(instance[strings.Index(instance, "spec:"):], "spec:", "instance:"), git, ""},
		"Other":     {"a FluxInstance of another cluster", "clusters/staging/flux.yaml", strings.ReplaceAll(instance, "./clusters/prod", "clusters/staging"), Sync{}, "no address"},
		"Group":     {"a kind of another group", file, strings.ReplaceAll(instance, "fluxcd.controlplane.io", "example.com"), Sync{}, "no address"},
		"Broken":    {"a file that is no YAML", file, "FluxInstance: [", Sync{}, "no address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			at := filepath.Join(dir, filepath.FromSlash(tc.file))
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.MkdirAll(filepath.Join(dir, "clusters/prod"), 0o755), os.WriteFile(at, []byte(tc.content), 0o600)); err != nil {
				t.Fatal(err)
			}
			f, err := Load(dir, "./clusters/prod/", Options{})
			switch {
			case tc.err == "no address":
				if err == nil || errors.Is(err, ErrOperator) {
					t.Errorf("%s: want the error of a fleet without an address, got %v", tc.reason, err)
				}
			case tc.err != "":
				if !errors.Is(err, ErrOperator) || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), tc.file) {
					t.Errorf("%s: want an error with %q and the file, got %v", tc.reason, tc.err, err)
				}
			case err != nil:
				t.Errorf("%s: %v", tc.reason, err)
			default:
				if diff := cmp.Diff(tc.want, f.Sync); diff != "" || f.Instance == nil || f.InstanceFile != tc.file || len(f.Overlay) != 0 {
					t.Errorf("%s: file %q, overlay of %d files, sync (-want +got):\n%s", tc.reason, f.InstanceFile, len(f.Overlay), diff)
				}
			}
		})
	}
}

// TestInstanceWithoutSync checks fleets whose FluxInstance installs Flux, and whose root objects are in
// another file.
func TestInstanceWithoutSync(t *testing.T) {
	t.Parallel()
	const instance = "apiVersion: fluxcd.controlplane.io/v1\nkind: FluxInstance\nmetadata: {name: flux, namespace: flux-system}\nspec: {cluster: {multitenant: true}}\n"
	const roots = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: fleet, namespace: flux-system}
spec: {url: "https://git.example.com/fleet", ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: fleet, namespace: flux-system}
spec: {path: clusters/prod, sourceRef: {kind: GitRepository, name: fleet}}
`
	want := Sync{Kind: "GitRepository", URL: "https://git.example.com/fleet", Branch: "main", Namespace: "flux-system", Source: "fleet", Kustomization: "fleet"}
	for reason, tc := range map[string]struct {
		files    map[string]string
		instance string
	}{
		"beside the root objects":        {map[string]string{"clusters/prod/flux.yaml": instance, "clusters/prod/sync.yaml": roots}, "clusters/prod/flux.yaml"},
		"in a folder of its own":         {map[string]string{"bootstrap/flux.yaml": instance, "clusters/prod/sync.yaml": roots}, "bootstrap/flux.yaml"},
		"another cluster's may be meant": {map[string]string{"a/flux.yaml": instance, "b/flux.yaml": instance, "clusters/prod/sync.yaml": roots}, ""},
		"a bootstrap installs Flux":      {map[string]string{"docs/flux.yaml": instance, "clusters/prod/flux-system/gotk-sync.yaml": roots}, ""},
	} {
		dir := t.TempDir()
		for name, content := range tc.files {
			at := filepath.Join(dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Load(dir, "clusters/prod", Options{})
		if err != nil {
			t.Errorf("%s: %v", reason, err)
			continue
		}
		if diff := cmp.Diff(want, f.Sync); diff != "" || f.InstanceFile != tc.instance {
			t.Errorf("%s: FluxInstance in %q, want %q, sync (-want +got):\n%s", reason, f.InstanceFile, tc.instance, diff)
		}
	}
}

func TestUsesOperator(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		content string
		want    bool
	}{
		"a ResourceSet":              {"apiVersion: fluxcd.controlplane.io/v1\nkind: ResourceSet\n", true},
		"a provider in a list":       {"items:\n  - kind: \"ResourceSetInputProvider\"\n", true},
		"a rule that names the kind": {"rules: [{kinds: [ResourceSet]}]\n", false},
		"a FluxInstance elsewhere":   {"apiVersion: fluxcd.controlplane.io/v1\nkind: FluxInstance\n", false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "sets.yaml"), []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (&Fleet{Dir: dir}).UsesOperator(); got != tc.want {
			t.Errorf("%s: UsesOperator() = %v", reason, got)
		}
	}
}

package localcluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const remoteAddresses = `resources:
- https://github.com/acme/crds/releases/download/v1.2.0/crds.yaml
- https://raw.githubusercontent.com/acme/other/v1/one.yaml
- https://github.com/acme/bases//base?ref=v2
`

// TestFetchRemoteFile checks that a manifest of Flux's own folder that is on another host is taken from the
// mapped file, and that other addresses are left to the build, which names the flags.
func TestFetchRemoteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "kept.yaml")
	system := filepath.Join(dir, "fleet", "flux-system")
	if err := os.MkdirAll(system, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{file: "kind: CustomResourceDefinition\n", filepath.Join(system, "kustomization.yaml"): remoteAddresses} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &Cluster{Fleet: &layout.Fleet{System: "flux-system"}, opts: Options{Maps: []network.Map{
		{Kind: network.KindFile, URL: "https://github.com/acme/crds/releases/download/v1.2.0/crds.yaml", Dir: file},
	}}}
	err := flux.FetchBases(filepath.Join(dir, "fleet"), system, func(base flux.RemoteBase, dir string) (string, error) {
		return c.bases().Fetch(t.Context(), base, dir)
	})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "fleet", ".remote", "1", "crds.yaml"))
	if err != nil || string(content) != "kind: CustomResourceDefinition\n" {
		t.Errorf("the manifest is %q, error %v", content, err)
	}
	const want = "--map https://raw.githubusercontent.com/acme/other/v1/one.yaml=FILE --map 'https://github.com/acme/bases#v2=DIR'"
	if got := flux.MapFlags(flux.RemoteBases(filepath.Join(dir, "fleet"), system)); got != want {
		t.Errorf("left: %s, want %s", got, want)
	}
}

// TestUnmappedBases checks that all remote bases of a Kustomization are named, in the flags that serve them.
func TestUnmappedBases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "infra"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "infra", "kustomization.yaml"), []byte(remoteAddresses), 0o600); err != nil {
		t.Fatal(err)
	}
	object := func(kind flux.Kind, name string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(kind.GroupVersionKind())
		u.SetNamespace("flux-system")
		u.SetName(name)
		return u
	}
	kube := fake.NewClientBuilder().WithScheme(flux.NewScheme()).WithObjects(
		object(flux.GitRepository, "fleet", map[string]any{"url": "https://git.example.com/fleet"}),
		object(flux.Kustomization, "infra", map[string]any{"path": "./infra", "sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"}}),
	).Build()
	c := &Cluster{opts: Options{Maps: []network.Map{
		{Kind: network.KindGit, URL: "https://git.example.com/fleet", Dir: dir},
		{Kind: network.KindGit, URL: "https://github.com/acme/bases", Branch: "v2", Dir: dir},
	}}}
	const want = "--map https://github.com/acme/crds/releases/download/v1.2.0/crds.yaml=FILE --map https://raw.githubusercontent.com/acme/other/v1/one.yaml=FILE"
	got := flux.MapFlags(c.UnmappedBases(t.Context(), kube, flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "infra"}))
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if gone := c.UnmappedBases(t.Context(), kube, flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "gone"}); gone != nil {
		t.Errorf("a Kustomization that is gone has %v", gone)
	}
}

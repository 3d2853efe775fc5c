package localcluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// aheadFleet is a fleet whose first layer fails. Its apps wait for it, and a Kustomization in them was not
// created yet.
var aheadFleet = map[string]string{
	"apps/repository.yaml": `{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {name: apps, namespace: apps}, spec: {url: "oci://oci.example.com/charts", secretRef: {name: pull}}}
---
{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: shop, namespace: apps}, spec: {chart: {spec: {chart: shop, sourceRef: {kind: HelmRepository, name: apps}}}, valuesFrom: [{kind: Secret, name: synced}, {kind: Secret, name: here}, {kind: Secret, name: "${NAME}"}, {kind: Secret, name: perhaps, optional: true}]}}
---
{apiVersion: external-secrets.io/v1, kind: ExternalSecret, metadata: {name: x, namespace: apps}, spec: {target: {name: synced}}}
`,
	"apps/served.yaml": `{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {name: served}, spec: {url: "https://charts.example.com/stable"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: OCIRepository, metadata: {name: served}, spec: {url: "oci://oci.example.com/served", ref: {tag: v2}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: variable}, spec: {url: "https://git.example.com/${TEAM}"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: named}, spec: {url: "https://git.example.com/named", ref: {branch: main}}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: inner, namespace: flux-system}, spec: {path: ./inner, targetNamespace: inner, sourceRef: {kind: GitRepository, name: fleet}}}
`,
	"inner/team.yaml": `{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: team}, spec: {url: "https://git.example.com/team", ref: {branch: main}, secretRef: {name: token}}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: itself}, spec: {path: ./inner, targetNamespace: inner, sourceRef: {kind: GitRepository, name: fleet}}}
`,
}

// TestAhead checks that what waits for a failed layer says which folders and Secrets it will need, and
// no address with a folder, no failed object, and no Secret of an operator.
func TestAhead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range aheadFleet {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := flux.ReadObjects([]byte(`{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: fleet, namespace: flux-system}, spec: {url: "https://git.example.com/fleet"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: named, namespace: flux-system}, spec: {url: "https://git.example.com/named", ref: {branch: main}}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: apps, namespace: flux-system}, spec: {path: ./apps, sourceRef: {kind: GitRepository, name: fleet}, decryption: {provider: sops, secretRef: {name: age}}, postBuild: {substituteFrom: [{kind: Secret, name: vars}]}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var all []client.Object
	for _, u := range objects {
		all = append(all, u)
	}
	kube := fake.NewClientBuilder().WithScheme(flux.NewScheme()).WithObjects(all...).Build()
	here := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "here"}}
	c := &Cluster{client: kubefake.NewClientset(here), opts: Options{Maps: []network.Map{
		{Kind: network.KindGit, URL: "https://git.example.com/fleet", Dir: dir},
		{Kind: network.KindHelm, URL: "https://charts.example.com/", Dir: dir},
		{Kind: network.KindOCI, URL: "oci://oci.example.com/served:v2", Dir: dir},
	}}}
	failures := []flux.Finding{
		{Row: flux.Row{Kind: flux.Kustomization, Namespace: "flux-system", Name: "apps"}, Reason: `secrets "age" not found`},
		{Row: flux.Row{Kind: flux.GitRepository, Namespace: "flux-system", Name: "named"}, Reason: "git.example.com is not mapped"},
	}
	want := Ahead{
		Addresses: []string{"https://git.example.com/team#main", "oci://oci.example.com/charts/shop"},
		Secrets:   []string{"apps/pull", "flux-system/vars", "inner/token"},
	}
	if diff := cmp.Diff(want, c.Ahead(t.Context(), kube, failures)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.opts.AssumeUnmapped = true
	if got := c.Ahead(t.Context(), kube, failures).Addresses; got != nil {
		t.Errorf("sources that will be assumed: %q", got)
	}
	c.opts.FakeSecrets = true
	if got := c.Ahead(t.Context(), kube, failures).Secrets; got != nil {
		t.Errorf("Secrets that will be invented: %q", got)
	}
}

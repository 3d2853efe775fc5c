package layout

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestLoadOfARootElsewhere checks roots outside of the system folder: a Kustomization beside its
// GitRepository, and a FluxConfig of Azure with a second Kustomization.
func TestLoadOfARootElsewhere(t *testing.T) {
	t.Parallel()
	f, err := Load(folder(t, map[string]string{"kubernetes/flux/config/cluster.yaml": strings.ReplaceAll(rootSync, "./clusters/staging", "./kubernetes/flux")}), "kubernetes/flux", Options{})
	if err != nil || len(f.Roots) != 2 || f.RootFile != "kubernetes/flux/config/cluster.yaml" || f.Sync.URL != "ssh://git@git.example.com/acme/fleet" {
		t.Errorf("a root in the cluster's folder: %v, %+v", err, f)
	}
	f, err = Load(folder(t, map[string]string{"kubernetes/flux/config/cluster.yaml": strings.NewReplacer("./clusters/staging", "./kubernetes/flux", "GitRepository", "OCIRepository", "ssh://git@", "oci://").Replace(rootSync)}), "kubernetes/flux", Options{})
	if err != nil || len(f.Roots) != 2 || f.Sync.Kind != ociRepository || f.Sync.URL != "oci://git.example.com/acme/fleet" {
		t.Errorf("a root OCIRepository in the cluster's folder: %v, %+v", err, f)
	}
	const azure = `apiVersion: clusterconfig.azure.com/v1beta1
kind: FluxConfig
metadata: {name: platform, namespace: cluster-config}
spec:
  gitRepository: {url: "https://git.example.com/azure", repositoryRef: {branch: main}, syncIntervalInSeconds: 120}
  kustomizations:
    infra: {path: ./infra}
    apps:
      path: ./apps
      prune: true
      force: true
      wait: false
      syncIntervalInSeconds: 300
      retryIntervalInSeconds: 60
      timeoutInSeconds: 240
      dependsOn: [infra]
      postBuild: {substitute: {region: west}, substituteFrom: [{kind: ConfigMap, name: vars, optional: true}]}
`
	f, err = Load(folder(t, map[string]string{"azure.yaml": azure, "apps/app.yaml": "kind: ConfigMap\n"}), "apps", Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := Sync{Kind: gitRepository, URL: "https://git.example.com/azure", Branch: "main", Namespace: "cluster-config", Source: "platform", Kustomization: "platform-apps"}
	var names []string
	for _, u := range f.Roots {
		names = append(names, u.GetKind()+" "+u.GetName())
	}
	if diff := cmp.Diff(want, f.Sync); diff != "" || strings.Join(names, ", ") != "Namespace cluster-config, GitRepository platform, Kustomization platform-apps, Kustomization platform-infra" {
		t.Errorf("FluxConfig: roots %v, sync (-want +got):\n%s", names, diff)
	}
	wantSpecs := []string{
		"interval: 120s\nref:\n  branch: main\nurl: https://git.example.com/azure\n",
		`dependsOn:
- name: platform-infra
force: true
interval: 300s
path: ./apps
postBuild:
  substitute:
    region: west
  substituteFrom:
  - kind: ConfigMap
    name: vars
    optional: true
prune: true
retryInterval: 60s
sourceRef:
  kind: GitRepository
  name: platform
timeout: 240s
wait: false
`,
		"interval: 10m\npath: ./infra\nprune: false\nsourceRef:\n  kind: GitRepository\n  name: platform\ntimeout: 10m\nwait: true\n",
	}
	for i, u := range f.Roots[1:] {
		spec, err := yaml.Marshal(u.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantSpecs[i], string(spec)); diff != "" {
			t.Errorf("spec of %s, -want +got:\n%s", u.GetName(), diff)
		}
	}
	tagged := strings.Replace(azure, "{branch: main}", "{tag: v1.2.3}", 1)
	f, err = Load(folder(t, map[string]string{"azure.yaml": tagged, "apps/app.yaml": "kind: ConfigMap\n"}), "apps", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if tag, _, _ := unstructured.NestedString(f.Roots[1].Object, "spec", "ref", "tag"); tag != "v1.2.3" {
		t.Errorf("a FluxConfig with a tag: %v", f.Roots[1].Object["spec"])
	}
}

// TestRootBySSH checks that a root by SSH that is not in the repository has a Secret, without which Flux
// does not open the repository.
func TestRootBySSH(t *testing.T) {
	t.Parallel()
	const app = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	f, err := Load(folder(t, map[string]string{"clusters/lab/app.yaml": app}), "clusters/lab", Options{URL: "ssh://git@git.example.com/fleet", Branch: "main"})
	if err != nil || f.Sync.SecretRef != "flux-system" || !strings.Contains(string(f.Overlay["clusters/lab/flux-system/gotk-sync.yaml"]), "  secretRef:\n    name: flux-system\n  url: ssh://") {
		t.Errorf("%v, %+v", err, f)
	}
	f, err = Load(folder(t, map[string]string{"clusters/lab/app.yaml": app}), "clusters/lab", Options{URL: "https://git.example.com/fleet", Branch: "main"})
	if err != nil || f.Sync.SecretRef != "" || strings.Contains(string(f.Overlay["clusters/lab/flux-system/gotk-sync.yaml"]), "secretRef") {
		t.Errorf("by HTTPS: %v, %+v", err, f)
	}
	const azure = "apiVersion: clusterconfig.azure.com/v1beta1\nkind: FluxConfig\nmetadata: {name: platform}\nspec:\n  gitRepository: {url: 'ssh://git@git.example.com/azure'%s}\n  kustomizations: {apps: {path: ./apps}}\n"
	for local, want := range map[string]string{"": "platform-auth", ", localAuthRef: mine": "mine"} {
		f, err = Load(folder(t, map[string]string{"azure.yaml": fmt.Sprintf(azure, local), "apps/app.yaml": app}), "apps", Options{})
		if err != nil || f.Sync.SecretRef != want {
			t.Errorf("a FluxConfig with %q: %v, %+v", local, err, f)
		}
	}
}

// TestDiagnoseRootless checks that a platform's repository whose root is elsewhere is told from others by
// its Kustomizations, and that the way out names their folder.
func TestDiagnoseRootless(t *testing.T) {
	t.Parallel()
	const apply = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: %s, namespace: flux-system}\nspec: {path: ./%s, sourceRef: {kind: GitRepository, name: flux-system}}\n"
	found, err := Look(folder(t, map[string]string{
		"clusters/lab/tenants.yaml":    fmt.Sprintf(apply, "tenants", "tenants/lab"),
		"tenants/lab/team.yaml":        fmt.Sprintf(apply, "team", "apps/team"),
		"apps/team/app.yaml":           "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"elsewhere/app/nowhere.yaml":   fmt.Sprintf(apply, "other", "not/here"),
		"elsewhere/own/repository.yml": strings.NewReplacer("./clusters/staging", "./apps/team", "flux-system", "own").Replace(rootSync),
	}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"clusters/lab"}, found.Rootless); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	found.Clusters, found.Missing, found.Nested = nil, nil, nil
	wayOut, problem := found.Diagnose("fleet")
	if !strings.Contains(wayOut, "give --path clusters/lab --map URL#BRANCH=fleet") || !strings.Contains(problem.Error(), "fleet is no fleet: the Kustomizations in clusters/lab apply folders of it") {
		t.Errorf("%s; %v", wayOut, problem)
	}
}

// TestRootlessAppliesItself checks that a Kustomization in the folder that it applies names the cluster's
// folder, also if its source is not in the repository.
func TestRootlessAppliesItself(t *testing.T) {
	t.Parallel()
	const apply = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: %s, namespace: default}\nspec: {path: ./%s, sourceRef: {kind: GitRepository, name: fleet}}\n"
	found, err := Look(folder(t, map[string]string{
		"hubs/lab/flux/lab.yaml":          fmt.Sprintf(apply, "lab", "hubs/lab"),
		"hubs/lab/teams/blue/spoke.yaml":  fmt.Sprintf(apply, "spoke", "hubs/lab/teams/blue/spoke"),
		"hubs/lab/teams/blue/spoke/a.yml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"hubs/lab"}, found.Rootless); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRootWithItsNames checks that the root source of a fleet whose root is elsewhere has the name that the
// Kustomizations in the cluster's folder give it, and that one which applies this folder is the root.
func TestRootWithItsNames(t *testing.T) {
	t.Parallel()
	const apply = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: %s, namespace: %s}\nspec: {path: ./%s, sourceRef: {kind: GitRepository, name: %s}}\n"
	files := map[string]string{
		"hubs/lab/teams/spoke.yaml": fmt.Sprintf(apply, "spoke", "config", "spokes/a", "fleet"),
		"hubs/lab/teams/team.yaml":  fmt.Sprintf(apply, "team", "team", "deploy", "team"),
		"spokes/a/a.yaml":           "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
	}
	load := func() *Fleet {
		t.Helper()
		f, err := Load(folder(t, files), "hubs/lab", Options{URL: "https://git.example.com/fleet", Branch: "main"})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	names := func(f *Fleet) (all []string) {
		for _, u := range f.Roots {
			all = append(all, u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName())
		}
		return all
	}
	want := Sync{Kind: gitRepository, URL: "https://git.example.com/fleet", Branch: "main", Namespace: "config", Source: "fleet", Kustomization: "fleet"}
	f := load()
	if diff := cmp.Diff(want, f.Sync) + cmp.Diff([]string{"Namespace /config", "GitRepository config/fleet", "Kustomization config/fleet"}, names(f)); diff != "" || !f.RootInvented {
		t.Errorf("a source of another name (-want +got):\n%s", diff)
	}
	files["hubs/lab/lab.yaml"] = fmt.Sprintf(apply, "lab", "config", "hubs/lab", "fleet")
	want.Kustomization = "lab"
	f = load()
	if diff := cmp.Diff(want, f.Sync) + cmp.Diff([]string{"Namespace /config", "GitRepository config/fleet", "Kustomization config/lab"}, names(f)); diff != "" || f.RootFile != "hubs/lab/lab.yaml" || f.RootInvented {
		t.Errorf("a root in its own folder (-want +got), in %s:\n%s", f.RootFile, diff)
	}
	delete(files, "hubs/lab/lab.yaml")
	files["hubs/lab/teams/usual.yaml"] = fmt.Sprintf(apply, "usual", "flux-system", "spokes/a", "flux-system")
	want.Namespace, want.Source, want.Kustomization = systemName, systemName, systemName
	f = load()
	if diff := cmp.Diff(want, f.Sync); diff != "" || len(f.Roots) > 0 || f.Overlay["hubs/lab/flux-system/gotk-sync.yaml"] == nil {
		t.Errorf("the names of a bootstrap (-want +got): %v\n%s", names(f), diff)
	}
}

// TestLookSkipsTenants checks that a tenant's source and Kustomization are no cluster.
func TestLookSkipsTenants(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"./", "./staging"} {
		found, err := Look(folder(t, map[string]string{
			"clusters/staging/flux-system/gotk-sync.yaml": rootSync,
			"tenants/base/team/sync.yaml":                 strings.ReplaceAll(rootSync, "./clusters/staging", at),
		}))
		if err != nil || found.Paths() != "clusters/staging" || len(found.Missing) > 0 {
			t.Errorf("a tenant with path %s: %v, %+v", at, err, found)
		}
	}
}

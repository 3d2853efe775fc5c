package lockdown_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var update = flag.Bool("update", false, "write testdata anew")

// example copies the example fleet's platform, and adds Flux's manifests.
func example(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../../examples/fleet/platform")); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"staging", "production"} {
		write(t, dir, "clusters/"+cluster+"/flux-system/gotk-components.yaml", string(config.FluxComponents()))
	}
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func load(t *testing.T, dir, path string) *layout.Fleet {
	t.Helper()
	f, err := layout.Load(dir, path, layout.Options{URL: "https://fleet.invalid", Components: config.FluxComponents()})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func apply(t *testing.T, dir, path string, o lockdown.Options) *lockdown.Plan {
	t.Helper()
	plan, err := lockdown.Make(load(t, dir, path), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Write(dir); err != nil {
		t.Fatal(err)
	}
	return plan
}

// back removes the lockdown from a cluster, in two steps: the first one lets the manager
// release its objects, and keeps the lockdown.
func back(t *testing.T, dir, path string) {
	t.Helper()
	plan := apply(t, dir, path, lockdown.Options{})
	if len(plan.Changes) != 1 || plan.Changes[0].Path != path+"/flux-system/tenure/sync.yaml" || len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], "the first of two steps") {
		t.Errorf("the first step notes %q and changes\n%s", plan.Notes, plan.Diff())
	}
	objects, err := flux.ReadObjects([]byte(read(t, dir)[path+"/flux-system/tenure/sync.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		patches, _, _ := unstructured.NestedSlice(o.Object, "spec", "patches")
		if releases := strings.Contains(fmt.Sprint(patches), "--release"); releases != (o.GetName() == "tenure-manager") {
			t.Errorf("%s %s has the patches %v", o.GetKind(), o.GetName(), patches)
		}
	}
	apply(t, dir, path, lockdown.Options{})
}

var allow = []string{"helm=https://charts.example.com"}

// TestThereAndBack checks that the lockdown writes the golden files, that a second run changes
// nothing, and that single-tenant removes exactly what the lockdown added.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	dir := example(t)
	before := read(t, dir)
	apply(t, dir, "clusters/staging", lockdown.Options{Tenants: true, Allow: allow})
	for name, golden := range map[string]string{
		"clusters/staging/flux-system/kustomization.yaml":        "flux-system.yaml",
		"clusters/staging/flux-system/tenure/kustomization.yaml": "component.yaml",
		"clusters/staging/flux-system/tenure/account.yaml":       "account.yaml",
		"clusters/staging/flux-system/tenure/network.yaml":       "network.yaml",
		"clusters/staging/flux-system/tenure/rights.yaml":        "rights.yaml",
		"clusters/staging/flux-system/tenure/sync.yaml":          "sync.yaml",
		"infrastructure/tenure/profile.yaml":                     "profile.yaml",
	} {
		compare(t, golden, read(t, dir)[name])
	}
	if again := apply(t, dir, "clusters/staging", lockdown.Options{Tenants: true}); len(again.Changes) > 0 {
		t.Errorf("again it changes\n%s", again.Diff())
	}
	apply(t, dir, "clusters/production", lockdown.Options{Tenants: true, Warn: new(true)})
	if sync := read(t, dir)["clusters/production/flux-system/tenure/sync.yaml"]; !strings.Contains(sync, "\n  components:\n    - warn\n") {
		t.Errorf("to warn is not in\n%s", sync)
	}
	if again := apply(t, dir, "clusters/production", lockdown.Options{Tenants: true}); len(again.Changes) > 0 || !strings.Contains(strings.Join(again.Notes, "\n"), "--mode enforce ends warn mode") {
		t.Errorf("a run that does not name the mode ends warn mode, or does not say that it stays: %q\n%s", again.Notes, again.Diff())
	}
	if warns, err := lockdown.Warns(load(t, dir, "clusters/production")); !warns || err != nil {
		t.Errorf("the fleet in warn mode warns: %v, %v", warns, err)
	}
	apply(t, dir, "clusters/production", lockdown.Options{Tenants: true, Warn: new(false)})
	if warns, err := lockdown.Warns(load(t, dir, "clusters/production")); warns || err != nil {
		t.Errorf("the fleet in enforce mode warns: %v, %v", warns, err)
	}
	for _, address := range []string{"helm=https://pages.example.com/team", "helm=https://*.example.com/team"} {
		_, err := lockdown.Make(load(t, dir, "clusters/staging"), lockdown.Options{Tenants: true, Allow: []string{address}})
		if err == nil || !strings.Contains(err.Error(), "approve the host as a whole") {
			t.Errorf("a later run with --allow %s: want a refusal, got %v", address, err)
		}
	}
	back(t, dir, "clusters/staging")
	if _, there := read(t, dir)["infrastructure/tenure/policies.yaml"]; !there {
		t.Error("the rules are gone, which the other cluster still needs")
	}
	write(t, dir, "clusters/production/tenants.yaml", before["clusters/production/tenants.yaml"]+"# edited by hand\n")
	back(t, dir, "clusters/production")
	before["clusters/production/tenants.yaml"] += "# edited by hand\n"
	if diff := cmp.Diff(before, read(t, dir)); diff != "" {
		t.Errorf("not all was taken out (-before +after):\n%s", diff)
	}
}

func compare(t *testing.T, golden, got string) {
	t.Helper()
	file := filepath.Join("testdata", golden)
	if *update {
		write(t, ".", file, got)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got), -update writes it:\n%s", golden, diff)
	}
}

// A small fleet after a bootstrap, without a lockdown.
const (
	components = `apiVersion: apps/v1
kind: Deployment
metadata: {name: kustomize-controller, namespace: flux-system}
spec: {template: {spec: {containers: [{name: manager, image: "registry.example.com/kustomize-controller:v1.9.5", args: [--log-level=info]}]}}}
`
	sync = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {url: "https://git.example.com/acme/fleet"}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec: {path: ./clusters/one, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
`
	system  = "resources:\n- gotk-components.yaml\n- gotk-sync.yaml\n"
	release = `apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: web, namespace: web}
spec: {interval: 1h}
`
	foreign = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: team, namespace: flux-system}
spec: {path: ./, prune: true, sourceRef: {kind: GitRepository, name: team}}
`
)

const folder = "clusters/one/flux-system/"

const (
	namespaceA = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
	namespaceB = "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n"
)

func small(t *testing.T, files map[string]string) string {
	t.Helper()
	all := map[string]string{folder + "gotk-components.yaml": components, folder + "gotk-sync.yaml": sync, folder + "kustomization.yaml": system}
	maps.Copy(all, files)
	return fleetOf(t, all)
}

// fleetOf writes the files of a known fleet; a new lockdown would take much longer.
func fleetOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, dir, name, content)
	}
	return dir
}

func TestRefused(t *testing.T) {
	t.Parallel()
	patch := func(value string) string {
		return system + "patches:\n- target: {kind: Deployment}\n  patch: |\n    - op: add\n      path: /spec/template/spec/containers/0/args/-\n      value: " + value + "\n"
	}
	for _, tt := range []struct {
		reason string
		files  map[string]string
		want   string
	}{
		{"a flag that is switched off later wins", map[string]string{folder + "kustomization.yaml": patch("--no-remote-bases=false")}, "set, but false comes later and overrides it"},
		{"this version does not know the gate", map[string]string{folder + "gotk-components.yaml": strings.Replace(components, "1.9.5", "1.6.0", 1)}, "kustomize-controller is 1.6.0 and needs 1.7.3"},
		{"a HelmRelease elsewhere was applied as cluster-admin", map[string]string{"clusters/one/web.yaml": release}, "HelmRelease web/web: set spec.serviceAccountName to an account of web that may do what it applies\n  an account that may do all that the controllers could, for a chart of the platform's alone:\n---\n"},
		{"another source must not become cluster-admin", map[string]string{"clusters/one/team.yaml": foreign}, "if team is the platform's alone"},
		{"without pruning the rights would stay", map[string]string{folder + "gotk-sync.yaml": strings.Replace(sync, "prune: true", "prune: false", 1)}, "set spec.prune: true"},
		{"the folder is somebody else's", map[string]string{folder + "tenure/kustomization.yaml": "resources: []\n"}, "was not written by `tenure profile`"},
		{"a file is in the way", map[string]string{"infrastructure": "a file\n"}, "infrastructure is in the way and is no folder"},
		{"the kustomization file is no YAML", map[string]string{folder + "kustomization.yaml": "resources: [\n"}, "cannot read the fleet: clusters/one/flux-system/kustomization.yaml:2 is not valid YAML"},
		{"an object is no YAML", map[string]string{"clusters/one/web.yaml": "a: [\n"}, "cannot read the fleet: clusters/one/web.yaml:2 is not valid YAML"},
		{"a path leads nowhere", map[string]string{"clusters/one/apps.yaml": strings.NewReplacer("./clusters/one", "./apps", "name: flux-system, namespace", "name: apps, namespace").Replace(sync)}, "cannot find apps"},
		{"another Kustomization applies the folder above Tenure's", map[string]string{"infrastructure/a.yaml": namespaceA, "infrastructure/b/kustomization.yaml": "resources: [c.yaml]\n", "infrastructure/b/c.yaml": namespaceB, "clusters/one/infrastructure.yaml": strings.NewReplacer("./clusters/one", "./infrastructure", "name: flux-system, namespace", "name: infrastructure, namespace").Replace(sync)}, "Kustomization flux-system/infrastructure applies all folders below infrastructure, so that it would apply infrastructure/tenure, too: write infrastructure/kustomization.yaml with its other files, `resources: [a.yaml, b]`"},
		{"there is a profile already", map[string]string{"clusters/one/profile.yaml": "apiVersion: tenure.dev/v1alpha1\nkind: TenancyProfile\nmetadata: {name: default, annotations: {}}\n---\napiVersion: tenure.dev/v1alpha1\nkind: TenancyProfile\nmetadata: {name: other}\n"}, "TenancyProfiles: keep one"},
		{"somebody else binds the controllers", map[string]string{folder + "gotk-components.yaml": components + "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: ours}\nroleRef: {kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: ServiceAccount, name: helm-controller, namespace: flux-system}]\n"}, "ClusterRoleBinding ours makes helm-controller a cluster-admin"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			dir := small(t, tt.files)
			f, err := layout.Load(dir, "clusters/one", layout.Options{URL: "https://fleet.invalid"})
			if err == nil {
				_, err = lockdown.Make(f, lockdown.Options{Tenants: true})
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestTenantsStay checks that the second step of the way back names the Tenants that the fleet still delivers.
func TestTenantsStay(t *testing.T) {
	t.Parallel()
	dir := small(t, map[string]string{"clusters/one/team.yaml": "apiVersion: tenure.dev/v1alpha1\nkind: Tenant\nmetadata: {name: team}\nspec: {}\n"})
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true})
	apply(t, dir, "clusters/one", lockdown.Options{})
	notes := strings.Join(apply(t, dir, "clusters/one", lockdown.Options{}).Notes, "\n")
	for _, want := range []string{
		"the fleet still delivers Tenant team: ", "syncs of tenants fail until their accounts have another role", "kubectl delete resourcequotas,networkpolicies -A -l ",
		"kubectl delete customresourcedefinitions sourcegrants.tenure.dev tenancyprofiles.tenure.dev tenantparameters.tenure.dev tenants.tenure.dev",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	// The Kustomizations become ready by the patch of the root.
	if patch, ready := strings.Index(notes, "patch kustomizations"), strings.Index(notes, "when all Kustomizations are ready"); patch < 0 || patch > ready {
		t.Errorf("the patch of the root comes after the step that needs it:\n%s", notes)
	}
}

// TestLink checks that a link with the name of our folder is neither followed nor replaced.
func TestLink(t *testing.T) {
	t.Parallel()
	dir, outside := small(t, nil), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "infrastructure")); err != nil {
		t.Fatal(err)
	}
	if _, err := lockdown.Make(load(t, dir, "clusters/one"), lockdown.Options{Tenants: true}); err == nil || !strings.Contains(err.Error(), "infrastructure is in the way") {
		t.Errorf("got error %v, want that the link is in the way", err)
	}
	content := "x"
	plan := lockdown.Plan{Changes: []lockdown.Change{{Path: "infrastructure/tenure/x.yaml", After: &content}}}
	if err := plan.Write(dir); err == nil || len(read(t, outside)) > 0 {
		t.Errorf("wrote through a link that leads out: %v", err)
	}
}

func TestFlagStates(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ reason, args, flag, want string }{
		{"a plain flag means true", "--no-remote-bases", "--no-remote-bases", "in force"},
		{"the value may be the next argument", "--default-service-account, robot", "--default-service-account", "in force"},
		{"an empty account is none", "--default-service-account=", "--default-service-account", "missing"},
		{"the last one wins", "--no-remote-bases=true, --no-remote-bases=false", "--no-remote-bases", "set, but false comes later and overrides it: remove it"},
		{"gates of several arguments add up", "'--feature-gates=A=false,ExternalArtifact=true', --feature-gates=B=true", "--feature-gates=ExternalArtifact", "in force"},
		{"a gate that is switched off", "--feature-gates=ExternalArtifact=false", "--feature-gates=ExternalArtifact", "is false"},
		{"another flag with this one's name in front", "--no-remote-bases-at-all=true", "--no-remote-bases", "missing"},
	} {
		objects, err := flux.ReadObjects([]byte(strings.Replace(components, "--log-level=info", tt.args, 1)))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range lockdown.FlagStates(objects) {
			if s.Name == tt.flag && s.String() != tt.want {
				t.Errorf("%s: got %q, want %q", tt.reason, s, tt.want)
			}
		}
	}
}

// TestExport checks that the export is locked down, and that single-tenant exports Flux
// unchanged.
func TestExport(t *testing.T) {
	t.Parallel()
	plain, err := lockdown.Export(config.FluxComponents(), lockdown.Options{})
	if err != nil || string(plain) != string(config.FluxComponents()) {
		t.Errorf("single-tenant is not Flux as it is: %v", err)
	}
	manifests, err := lockdown.Export(config.FluxComponents(), lockdown.Options{Tenants: true, Warn: new(true), Allow: allow})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := flux.ReadObjects(manifests)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, o := range objects {
		found[o.GetKind()+"/"+o.GetName()]++
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
			actions, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "validationActions")
			found["binding "+o.GetName()+" "+strings.Join(actions, ",")]++
		}
	}
	for name, want := range map[string]int{
		"ClusterRoleBinding/cluster-reconciler-flux-system": 0, "ClusterRoleBinding/crd-controller-flux-system": 0, "ClusterRole/crd-controller-flux-system": 0,
		"ClusterRoleBinding/tenure-helm-controller": 1, "Deployment/tenure-manager": 1, "ServiceAccount/tenure-manager": 1, "TenancyProfile/default": 1, "ClusterRole/tenure-tenant": 1, "Kustomization/tenure": 0,
		// Rules in place of rights that RBAC cannot restrict deny in warn mode, too.
		"binding tenure-objects-own-rest Warn,Audit": 1, "binding tenure-objects-own-pods Warn,Audit": 1, "binding tenure-flux-own Warn,Audit": 1,
		"binding tenure-objects-always-own-rest Deny": 1, "binding tenure-objects-always-own-rest-others Deny": 1, "binding tenure-objects-always-own-pods Deny": 1, "binding tenure-objects-always-own-flux Deny": 1, "binding tenure-objects-always-flux Deny": 1,
		"binding tenure-namespaces Deny": 1, "binding tenure-namespace-names Deny": 1, "binding tenure-credentials Deny": 1, "binding tenure-replicators Deny": 1, "binding tenure-parameters Deny": 1,
	} {
		if found[name] != want {
			t.Errorf("there are %d of %s, want %d", found[name], name, want)
		}
	}
}

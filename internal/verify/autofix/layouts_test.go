package autofix

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// fluxSystem is the folder of Flux's manifests in the fleets of this test.
const fluxSystem = "clusters/staging/flux-system/"

var controllers = []string{
	"source-controller", "kustomize-controller", "helm-controller", "notification-controller",
	"image-reflector-controller", "image-automation-controller", "source-watcher",
}

// gotkComponents has a Deployment of each controller.
func gotkComponents() string {
	var b strings.Builder
	for _, name := range controllers {
		b.WriteString("---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: " + name + "\n  namespace: flux-system\nspec:\n  template:\n    spec:\n      containers:\n      - name: manager\n        args:\n        - --log-level=info\n")
	}
	return b.String()
}

func gotkSync(cluster string) string {
	return `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata:
  name: flux-system
  namespace: flux-system
spec:
  interval: 1m0s
  ref:
    branch: main
  url: https://git.example.com/acme/fleet
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  name: flux-system
  namespace: flux-system
spec:
  interval: 10m0s
  path: ./clusters/` + cluster + `
  prune: true
  sourceRef:
    kind: GitRepository
    name: flux-system
`
}

const teamSync = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  name: tenants
  namespace: flux-system
spec:
  interval: 10m
  path: ./tenants/CLUSTER
  prune: true
  serviceAccountName: kustomize-controller
  sourceRef:
    kind: GitRepository
    name: flux-system
`

const teamNamespace = `apiVersion: v1
kind: Namespace
metadata:
  name: apps
`

const teamRights = `apiVersion: v1
kind: ServiceAccount
metadata:
  name: team
  namespace: apps
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: team
  namespace: apps
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: cluster-admin
subjects:
  - kind: ServiceAccount
    name: team
    namespace: apps
`

const teamFolder = "tenants/base/team/"

var team = discovery.Tenant{Name: "team", Namespaces: []string{"apps"}, Accounts: []discovery.Account{{Namespace: "apps", Name: "team"}}}

// twoClusters is a fleet without any lockdown; its clusters share the tenants' base.
func twoClusters() map[string]string {
	files := map[string]string{
		teamFolder + "kustomization.yaml": "resources:\n  - namespace.yaml\n  - rbac.yaml\n",
		teamFolder + "namespace.yaml":     teamNamespace,
		teamFolder + "rbac.yaml":          teamRights,
	}
	for _, c := range []string{"staging", "production"} {
		files["clusters/"+c+"/flux-system/gotk-components.yaml"] = gotkComponents()
		files["clusters/"+c+"/flux-system/gotk-sync.yaml"] = gotkSync(c)
		files["clusters/"+c+"/flux-system/kustomization.yaml"] = system
		files["clusters/"+c+"/tenants.yaml"] = strings.ReplaceAll(teamSync, "CLUSTER", c)
		files["tenants/"+c+"/kustomization.yaml"] = "resources:\n  - ../base/team\n"
	}
	return files
}

// A layoutCase is a fleet and what patches there are for it.
type layoutCase struct {
	reason string
	change func(files map[string]string)
	// flags, rights and labels say which fixes have a patch, and except which attacks
	// have none all the same.
	flags, rights, labels bool
	except                []string
}

func patches(text string) func(map[string]string) {
	return func(files map[string]string) {
		files[fluxSystem+"kustomization.yaml"] = system + "patches:\n" + text
	}
}

// merging is a strategic merge patch that replaces the arguments of kustomize-controller.
const merging = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: kustomize-controller
  namespace: flux-system
spec:
  template:
    spec:
      containers:
        - name: manager
          args:
            - --no-cross-namespace-refs=false
            - --no-remote-bases=false
`

const target = "  - target:\n      kind: Deployment\n      name: "

func nested(text string) string {
	return strings.Join(yamledit.Indented(text, 6), "\n") + "\n"
}

func layouts() map[string]layoutCase {
	all := func(reason string, change func(map[string]string)) layoutCase {
		return layoutCase{reason: reason, change: change, flags: true, rights: true, labels: true}
	}
	noFlags := func(reason string, change func(map[string]string)) layoutCase {
		return layoutCase{reason: reason, change: change, rights: true, labels: true}
	}
	return map[string]layoutCase{
		"Plain":         all("the layout of flux bootstrap", func(map[string]string) {}),
		"JSON6902":      all("a patch of another flag", patches(target+"kustomize-controller\n    patch: |\n      - op: add\n        path: /spec/template/spec/containers/0/args/-\n        value: --concurrent=2 \n")),
		"JSON6902False": all("a flag that says no, for several controllers", patches(target+"(kustomize|helm|notification)-controller\n    patch: |-\n      - op: add\n        path: /spec/template/spec/containers/0/args/-\n        value: --no-cross-namespace-refs=false\n")),
		"JSON6902JSON":  all("a patch that is written as JSON", patches(target+"kustomize-controller\n    patch: '[{\"op\": \"add\", \"path\": \"/spec/template/spec/containers/0/args/-\", \"value\": \"--no-cross-namespace-refs=false\"}]'\n")),
		"Merge":         all("a strategic merge patch that replaces all arguments", patches("  - patch: |\n"+nested(merging))),
		"Selector":      all("a patch with a selector that selects no controller", patches("  - target:\n      kind: Deployment\n      labelSelector: app=other\n    patch: |\n      - op: add\n        path: /spec/template/spec/containers/0/args/-\n        value: --no-cross-namespace-refs=true\n")),
		"File": all("a patch in a file", func(files map[string]string) {
			files[fluxSystem+"kustomization.yaml"] = system + "patches:\n- path: gotk-patches.yaml\n  target:\n    kind: Deployment\n    name: kustomize-controller\n"
			files[fluxSystem+"gotk-patches.yaml"] = merging
		}),
		"StrategicMerge": all("the deprecated field with a file", func(files map[string]string) {
			files[fluxSystem+"kustomization.yaml"] = system + "patchesStrategicMerge:\n  - gotk-patches.yaml\n"
			files[fluxSystem+"gotk-patches.yaml"] = merging
		}),
		"PatchesJson6902": {
			"the deprecated field, which kustomize applies after all other patches, has the last word",
			func(files map[string]string) {
				files[fluxSystem+"kustomization.yaml"] = system + "patchesJson6902:\n  - target:\n      group: apps\n      version: v1\n      kind: Deployment\n      name: kustomize-controller\n      namespace: flux-system\n    patch: |\n      - op: add\n        path: /spec/template/spec/containers/0/args/-\n        value: --no-remote-bases=false\n"
			}, true, true, true, []string{"S7-git"},
		},
		"Component": all("a component that sets a flag", func(files map[string]string) {
			files[fluxSystem+"kustomization.yaml"] = system + "components:\n  - ../../../lockdown\n"
			files["lockdown/kustomization.yaml"] = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n" + target + "kustomize-controller\n    patch: |\n      - op: add\n        path: /spec/template/spec/containers/0/args/-\n        value: --no-remote-bases=false\n"
		}),
		"Base": all("a base of Flux's manifests that the clusters share", func(files map[string]string) {
			files["base/gotk-components.yaml"], files["base/kustomization.yaml"] = gotkComponents(), "resources: [gotk-components.yaml]\n"
			for _, c := range []string{"staging", "production"} {
				delete(files, "clusters/"+c+"/flux-system/gotk-components.yaml")
				files["clusters/"+c+"/flux-system/kustomization.yaml"] = "resources:\n  - ../../../base\n  - gotk-sync.yaml\n"
			}
		}),
		"RootInBase": all("a base of the cluster's folder", func(files map[string]string) {
			files["clusters/base/kustomization.yaml"] = "resources:\n  - tenants.yaml\n"
			files["clusters/base/tenants.yaml"] = files["clusters/staging/tenants.yaml"]
			delete(files, "clusters/staging/tenants.yaml")
			files["clusters/staging/kustomization.yaml"] = "resources:\n  - flux-system\n  - ../base\n"
		}),
		"NoKustomization": all("no kustomization file beside Flux's manifests", func(files map[string]string) { delete(files, fluxSystem+"kustomization.yaml") }),
		"Yml":             all("another name of the kustomization file", rename(fluxSystem+"kustomization.yaml", fluxSystem+"kustomization.yml")),
		"NoExtension":     all("the third name of the kustomization file", rename(fluxSystem+"kustomization.yaml", fluxSystem+"Kustomization")),
		"Comments": all("comments, blank lines, trailing spaces and no line end at the end", func(files map[string]string) {
			files[fluxSystem+"kustomization.yaml"] = "# Flux\n\nresources:   \n- gotk-components.yaml   # generated\n\n- gotk-sync.yaml\n# the end"
			files[teamFolder+"rbac.yaml"] = "# rights\n---\n" + strings.ReplaceAll(strings.TrimSpace(teamRights), "cluster-admin", "cluster-admin   # for now")
		}),
		"OneFile": all("all objects of a tenant in one file", func(files map[string]string) {
			files[teamFolder+"all.yaml"] = "---\n" + teamNamespace + "---\n# nothing\n---\n" + teamRights
			files[teamFolder+"kustomization.yaml"] = "resources: [all.yaml]\n"
			delete(files, teamFolder+"namespace.yaml")
			delete(files, teamFolder+"rbac.yaml")
		}),
		"Names": all("a folder with a space and a letter that is not ASCII", func(files map[string]string) {
			for _, name := range []string{"kustomization.yaml", "namespace.yaml", "rbac.yaml"} {
				files["tenants/base/équipe un/"+name] = files[teamFolder+name]
				delete(files, teamFolder+name)
			}
			files["tenants/staging/kustomization.yaml"] = "resources:\n  - ../base/équipe un\n"
			files["tenants/production/kustomization.yaml"] = "resources:\n  - ../base/équipe un\n"
		}),
		"Namespace": all("an overlay that sets the namespace", func(files map[string]string) {
			files["tenants/base/team/rbac.yaml"] = strings.ReplaceAll(teamRights, "  namespace: apps\n", "")
			files["tenants/staging/kustomization.yaml"] = "namespace: apps\nresources:\n  - ../base/team\n"
		}),
		"NotListed": noFlags("a kustomization file without Flux's manifests", func(files map[string]string) {
			files[fluxSystem+"kustomization.yaml"] = "resources:\n  - gotk-sync.yaml\n"
			delete(files, fluxSystem+"gotk-components.yaml")
		}),
		"NoFolder": noFlags("no manifests of Flux at all", func(files map[string]string) {
			for _, name := range []string{"kustomization.yaml", "gotk-components.yaml", "gotk-sync.yaml"} {
				delete(files, fluxSystem+name)
			}
		}),
		"Operator": noFlags("Flux that flux-operator installs", func(files map[string]string) {
			for _, name := range []string{"kustomization.yaml", "gotk-components.yaml", "gotk-sync.yaml"} {
				delete(files, fluxSystem+name)
			}
			files["clusters/staging/flux.yaml"] = "apiVersion: fluxcd.controlplane.io/v1\nkind: FluxInstance\nmetadata: {name: flux, namespace: flux-system}\nspec: {distribution: {version: 2.x, registry: ghcr.io/fluxcd}, sync: {kind: GitRepository, url: \"https://git.example.com/fleet\", ref: refs/heads/main, path: clusters/staging}}\n"
		}),
		"RootLists": noFlags("a root that lists Flux's files past their kustomization file", func(files map[string]string) {
			files["clusters/staging/kustomization.yaml"] = "resources:\n  - flux-system/gotk-components.yaml\n  - flux-system/gotk-sync.yaml\n  - tenants.yaml\n"
		}),
		"Broken": noFlags("a kustomization that does not build", func(files map[string]string) { files[fluxSystem+"kustomization.yaml"] = system + "  - missing.yaml\n" }),
		"JSON": noFlags("a kustomization file in JSON", func(files map[string]string) {
			files[fluxSystem+"kustomization.yaml"] = `{"resources": ["gotk-components.yaml", "gotk-sync.yaml"]}`
		}),
		"Anchors": noFlags("a kustomization file with anchors", func(files map[string]string) {
			files[fluxSystem+"kustomization.yaml"] = "commonAnnotations: &a {x: z}\n" + system
		}),
		"CRLF": noFlags("a kustomization file with Windows line ends", func(files map[string]string) {
			files[fluxSystem+"kustomization.yaml"] = strings.ReplaceAll(system, "\n", "\r\n")
		}),
		"TenantCRLF": {"a tenant's file with Windows line ends", func(files map[string]string) {
			files[teamFolder+"rbac.yaml"] = strings.ReplaceAll(teamRights, "\n", "\r\n")
		}, true, false, true, nil},
		"Renamed": {"an overlay that renames the tenant's objects", func(files map[string]string) {
			files["tenants/staging/kustomization.yaml"] = "namePrefix: x-\nresources:\n  - ../base/team\n"
		}, true, false, true, nil},
		"Variable": {"a name that Flux replaces", func(files map[string]string) {
			files[teamFolder+"namespace.yaml"] = strings.ReplaceAll(teamNamespace, "apps", "${team}") + "---\n" + strings.ReplaceAll(teamNamespace, "apps", "${team}-preview")
			files[teamFolder+"rbac.yaml"] = strings.ReplaceAll(teamRights, "apps", "${team}")
		}, true, false, true, nil},
		"OverlayRole": {"an overlay that decides the role", func(files map[string]string) {
			files["tenants/staging/kustomization.yaml"] = "resources:\n  - ../base/team\npatches:\n  - target: {kind: RoleBinding}\n    patch: |\n      - {op: replace, path: /roleRef/name, value: cluster-admin}\n      - {op: replace, path: /roleRef/kind, value: ClusterRole}\n"
		}, true, false, true, nil},
	}
}

func rename(from, to string) func(map[string]string) {
	return func(files map[string]string) {
		files[to] = files[from]
		delete(files, from)
	}
}

// TestLayouts makes a patch for every fix of the catalogue in fleets of many layouts. Each
// patch is applied; the result builds, and has all that the fix is for; no other cluster
// changes unless the patch says so. A layout that cannot be patched gets no patch.
func TestLayouts(t *testing.T) {
	t.Parallel()
	for name, l := range layouts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := twoClusters()
			l.change(files)
			f := fleetOf(t, files)
			before := buildOf(t, f.Dir, "clusters/production")
			tried, seen := map[string]bool{}, map[string]bool{}
			for _, a := range catalog.Catalogue() {
				want := len(a.Fix.Flags) > 0 && l.flags || (a.Fix.Rights || len(a.Fix.Denied) > 0) && l.rights || len(a.Fix.Labels) > 0 && l.labels
				want = want && !slices.Contains(l.except, a.Key())
				// Many attacks have the same fix.
				fix := fmt.Sprint(a.Fix.Flags, a.Fix.Rights, a.Fix.Denied, a.Fix.Labels)
				if tried[fix] {
					continue
				}
				tried[fix] = true
				patch, err := Patch(f, a.Fix, team)
				if err != nil {
					t.Fatal(err)
				}
				if got := patch != ""; got != want || a.Fix.Advice == "" {
					t.Errorf("%s: %s has a patch: %t, want %t\n%s", l.reason, a.Key(), got, want, patch)
				}
				if patch == "" || seen[patch] {
					continue
				}
				seen[patch] = true
				after := fleetOf(t, files)
				apply(t, after, patch, "git", "apply")
				checkFix(t, a, buildOf(t, after.Dir, "clusters/staging"))
				if noted := strings.Contains(patch, "since its name is ${team}\n"); noted != (name == "Variable" && len(a.Fix.Labels) > 0) {
					t.Errorf("%s: the patch for %s says that the name is a variable: %t\n%s", l.reason, a.Key(), noted, patch)
				}
				said := strings.Contains(patch, "# this changes clusters/production too")
				if diff := cmp.Diff(before, buildOf(t, after.Dir, "clusters/production")); (diff != "") != said {
					t.Errorf("%s: the patch for %s says that it changes the other cluster: %t\n%s", l.reason, a.Key(), said, diff)
				}
			}
		})
	}
}

func fleetOf(t *testing.T, files map[string]string) *layout.Fleet {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return load1(t, dir)
}

// buildOf builds what Flux applies for a cluster.
func buildOf(t *testing.T, dir, cluster string) built {
	t.Helper()
	f, err := layout.Load(dir, cluster, layout.Options{URL: "https://git.example.com/acme/fleet", Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := load(f)
	if err != nil {
		t.Fatal(err)
	}
	all, err := tree.bench.build(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.bench.close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// checkFix checks that the build contains the fix.
func checkFix(t *testing.T, a catalog.Attack, b built) {
	t.Helper()
	kind := func(kind string) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool { return o.GetKind() == kind }
	}
	for _, flag := range a.Fix.Flags {
		if !started(b, flag) {
			t.Errorf("%s: %s is not started with %s", a.Key(), flag.Controller, flag.Flag)
		}
	}
	for key, value := range a.Fix.Labels {
		for _, o := range b.find(kind("Namespace")) {
			if (o.GetName() == "apps" || o.GetName() == "${team}") != (o.GetLabels()[key] == value) {
				t.Errorf("%s: the namespace has the labels %v", a.Key(), o.GetLabels())
			}
		}
	}
	if !a.Fix.Rights && len(a.Fix.Denied) == 0 {
		return
	}
	for _, o := range b.find(kind("RoleBinding")) {
		name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
		if roles := b.named("Role", o.GetNamespace(), name); len(roles) == 0 {
			t.Errorf("%s: %s is bound to %s", a.Key(), o.GetName(), name)
		}
	}
}

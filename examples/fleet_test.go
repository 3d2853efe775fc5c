// Package examples_test checks the example fleet without a cluster: every
// folder that Flux is told to apply builds, every object is of a kind and
// version that Kubernetes 1.36 and Flux 2.9 serve, the order of reconciliation
// is the promised one, and the encrypted Secret opens with the example's key.
package examples_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// overlays are the folders that Flux is told to apply.
var overlays = []string{
	"fleet/platform/clusters/staging/flux-system",
	"fleet/platform/clusters/production/flux-system",
	"fleet/platform/infrastructure/controllers",
	"fleet/platform/infrastructure/policies",
	"fleet/platform/tenants/staging",
	"fleet/platform/tenants/production",
	"fleet/dev-team/staging",
	"fleet/dev-team/preview",
	"fleet/dev-team/production",
	"fleet/billing/staging",
	"fleet/billing/production",
}

// served is what the example may use: every group's version is the newest that
// Kubernetes 1.36 or Flux 2.9 serves.
var served = map[string][]string{
	"v1":                              {"ConfigMap", "LimitRange", "Namespace", "PersistentVolumeClaim", "ResourceQuota", "Secret", "Service", "ServiceAccount"},
	"admissionregistration.k8s.io/v1": {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
	"apps/v1":                         {"Deployment", "StatefulSet"},
	"batch/v1":                        {"CronJob"},
	"networking.k8s.io/v1":            {"IngressClass", "NetworkPolicy"},
	"rbac.authorization.k8s.io/v1":    {"ClusterRole", "ClusterRoleBinding", "RoleBinding"},
	"helm.toolkit.fluxcd.io/v2":       {"HelmRelease"},
	"kustomize.toolkit.fluxcd.io/v1":  {"Kustomization"},
	"notification.toolkit.fluxcd.io/v1": {
		"Receiver",
	},
	"source.toolkit.fluxcd.io/v1": {"GitRepository", "HelmRepository"},
}

func TestOverlays(t *testing.T) {
	t.Parallel()
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			checkServed(t, build(t, overlay))
		})
	}
}

// TestEveryFolderIsCovered fails when an overlay is added that no test builds.
func TestEveryFolderIsCovered(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("fleet", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Name() != "kustomization.yaml" {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		// Bases are built as parts of the overlays.
		base := strings.Contains(dir, "/base") || dir == "fleet/dev-team/api"
		if !base && !slices.Contains(overlays, dir) {
			t.Errorf("%s is built by no test: add it to overlays", dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestClusters checks the files beside flux-system, which Flux applies although
// no kustomization.yaml names them.
func TestClusters(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"staging", "production"} {
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			objects := generated(t, "fleet/platform/clusters/"+env)
			checkServed(t, objects)

			got := map[string][]string{}
			for _, o := range objects.Resources() {
				var spec kustomization
				decode(t, o, &spec)
				if want := filepath.Join("fleet/platform", spec.Spec.Path); !isDir(want) {
					t.Errorf("%s applies %s, which is not a folder of the fleet", o.GetName(), spec.Spec.Path)
				}
				if spec.Spec.ServiceAccountName == "" || !spec.Spec.Prune || spec.Spec.Timeout == "" {
					t.Errorf("%s lacks a service account, prune or a timeout", o.GetName())
				}
				// Without wait, "ready" would only mean applied, and
				// tenants could start before the rules hold.
				if o.GetName() != "tenants" && !spec.Spec.Wait {
					t.Errorf("tenants depend on %s, which does not wait", o.GetName())
				}
				got[o.GetName()] = names(spec.Spec.DependsOn)
			}
			want := map[string][]string{"policies": {}, "controllers": {}, "tenants": {"policies", "controllers"}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the platform's parts come in another order: -want, +got:\n%s", diff)
			}
		})
	}
}

// TestLockdown builds the clusters with stand-ins for Flux's Deployments and
// reads the flags that the fleet's patches add to each.
func TestLockdown(t *testing.T) {
	t.Parallel()
	const noCross = "--no-cross-namespace-refs=true"
	want := map[string][]string{
		"source-controller":           {},
		"kustomize-controller":        {noCross, "--no-remote-bases=true", "--default-service-account=default", "--requeue-dependency=5s"},
		"helm-controller":             {noCross, "--default-service-account=default", "--requeue-dependency=5s"},
		"notification-controller":     {noCross},
		"image-reflector-controller":  {noCross},
		"image-automation-controller": {noCross},
		"source-watcher":              {noCross},
	}
	for _, env := range []string{"staging", "production"} {
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "flux-system")
			if err := os.CopyFS(dir, os.DirFS("fleet/platform/clusters/"+env+"/flux-system")); err != nil {
				t.Fatal(err)
			}
			var components strings.Builder
			for name := range want {
				components.WriteString("---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + ", namespace: flux-system}\nspec: {template: {spec: {containers: [{name: manager, args: []}]}}}\n")
			}
			if err := os.WriteFile(filepath.Join(dir, "gotk-components.yaml"), []byte(components.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			got := map[string][]string{}
			for _, o := range build(t, dir).Resources() {
				switch o.GetKind() {
				case "Deployment":
					var d deployment
					decode(t, o, &d)
					got[o.GetName()] = d.Spec.Template.Spec.Containers[0].Args
				case "Kustomization":
					var k kustomization
					decode(t, o, &k)
					if k.Spec.ServiceAccountName != "kustomize-controller" {
						t.Errorf("the root applies as %q: the default account has no rights", k.Spec.ServiceAccountName)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("flags that the patches add: -want, +got:\n%s", diff)
			}
		})
	}
}

// building keeps builds apart: kustomize has global state.
var building sync.Mutex

// build runs kustomize on a folder as Flux does: within the folder's
// repository.
func build(t *testing.T, dir string) resmap.ResMap {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("cannot build %s: %v", dir, err)
	}
	return objects
}

// generated builds the YAML files of a folder that has no kustomization.yaml,
// as Flux does, without its subfolders.
func generated(t *testing.T, dir string) resmap.ResMap {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("cannot find manifests in %s: %v", dir, err)
	}
	text := "resources:\n"
	tmp := t.TempDir()
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tmp, filepath.Base(file)), content, 0o600); err != nil {
			t.Fatal(err)
		}
		text += "  - " + filepath.Base(file) + "\n"
	}
	if err := os.WriteFile(filepath.Join(tmp, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return build(t, tmp)
}

// checkServed checks the kind of every object, and the fields of those whose
// types client-go has.
func checkServed(t *testing.T, objects resmap.ResMap) {
	t.Helper()
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Strict: true})
	for _, o := range objects.Resources() {
		if !slices.Contains(served[o.GetApiVersion()], o.GetKind()) {
			t.Errorf("%s %s has the API version %s, which is not in the list of served ones", o.GetKind(), o.GetName(), o.GetApiVersion())
			continue
		}
		if strings.Contains(o.GetApiVersion(), "fluxcd.io") || encrypted(o) {
			continue
		}
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := strict.Decode(text, nil, nil); err != nil && !runtime.IsNotRegisteredError(err) {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

package e2e

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// imageSync follows a repository and the tags of an image, and lets Flux commit the newest tag
// to the repository. The intervals are so long that the controllers reconcile only after
// events.
const imageSync = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: app, namespace: flux-system}
spec: {interval: 1h, url: https://git.example.com/acme/app, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: flux-system}
spec: {interval: 1h, retryInterval: 2s, path: ./, prune: true, serviceAccountName: tenure-root, sourceRef: {kind: GitRepository, name: app}}
---
apiVersion: image.toolkit.fluxcd.io/v1
kind: ImageRepository
metadata: {name: app, namespace: flux-system}
spec: {interval: 1h, image: oci.example.com/acme/app}
---
apiVersion: image.toolkit.fluxcd.io/v1
kind: ImagePolicy
metadata: {name: app, namespace: flux-system}
spec: {imageRepositoryRef: {name: app}, policy: {semver: {range: 1.x}}}
---
apiVersion: image.toolkit.fluxcd.io/v1
kind: ImageUpdateAutomation
metadata: {name: app, namespace: flux-system}
spec:
  interval: 1h
  sourceRef: {kind: GitRepository, name: app}
  git:
    checkout: {ref: {branch: main}}
    commit: {author: {name: flux, email: flux@example.com}}
    push: {branch: main}
  update: {strategy: Setters, path: ./}
`

// artifactSync applies a folder from a registry.
const artifactSync = `apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: folder, namespace: flux-system}
spec: {interval: 1h, url: "oci://oci.example.com/acme/folder"}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: folder, namespace: flux-system}
spec: {interval: 1h, retryInterval: 2s, path: ./, prune: true, serviceAccountName: tenure-root, sourceRef: {kind: OCIRepository, name: folder}}
`

// imageMarker is a manifest with a field that Flux's image automation sets.
const imageMarker = `apiVersion: v1
kind: ConfigMap
metadata: {name: app, namespace: default}
data:
  image: oci.example.com/acme/app:1.0.0 # {"$imagepolicy": "flux-system:app"}
`

// automationOverSSH reads a repository with a key from a Secret, by two
// controllers.
const automationOverSSH = `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: ssh, namespace: flux-system}
spec: {interval: 1h, url: "ssh://git@git.example.com/acme/app", ref: {branch: main}, secretRef: {name: ssh}}
---
apiVersion: image.toolkit.fluxcd.io/v1
kind: ImageUpdateAutomation
metadata: {name: ssh, namespace: flux-system}
spec:
  interval: 1h
  sourceRef: {kind: GitRepository, name: ssh}
  git:
    commit: {author: {name: flux, email: flux@example.com}}
  update: {strategy: Setters, path: ./}
`

// TestImageAutomation runs a fleet with image automation under the multi-tenant profile,
// without Flux's manifests. The cluster runs the two image controllers, which find a newer tag
// at a mapped address and push it to the served copy of a mapped repository, with only the
// rights that the profile grants. The cluster follows the push, and the user's own repository
// stays unchanged. The artifact proxy passes an artifact from a registry, whose name differs from that of a commit.
func TestImageAutomation(t *testing.T) {
	t.Parallel()
	dir, _ := newFleet(t, map[string]string{"clusters/test/images.yaml": imageSync, "clusters/test/artifact.yaml": artifactSync})
	lockDown(t, dir, lockdown.Options{Tenants: true})
	app := filepath.Join(t.TempDir(), "app")
	write(t, imageMarker, app, "app.yaml")
	git(t, app, "init", "--quiet", "--initial-branch=main")
	git(t, app, "add", "-A")
	git(t, app, "commit", "--quiet", "-m", "first")
	content := filepath.Join(t.TempDir(), "content")
	write(t, "some content\n", content, "file")
	folder := filepath.Join(t.TempDir(), "folder")
	write(t, configMap("folder", "from a registry"), folder, "state.yaml")
	before := everyFile(t, app)

	r, failed := start(t, localcluster.Options{
		Fleet: dir, Path: "clusters/test",
		Maps: parseMaps(t,
			"https://git.example.com/acme/app="+app,
			"oci://oci.example.com/acme/app:1.0.0="+content,
			"oci://oci.example.com/acme/app:1.1.0="+content,
			"oci://oci.example.com/acme/app:2.0.0="+content,
			"oci://oci.example.com/acme/folder:latest="+folder),
	})
	expectNothing(t, "a fleet with image automation is ready", failed)
	for _, controller := range []string{"image-reflector-controller", "image-automation-controller"} {
		command := r.processOf(controller).command
		if filepath.Base(command[0]) != "tenure-flux" || command[1] != controller {
			t.Errorf("the Pod of %s runs %s", controller, command[:2])
		}
		// The exit code is 1 for no.
		can, _ := kubectl(t, r.Cluster, "", "auth", "can-i", "list", "secrets", "--all-namespaces", "--as=system:serviceaccount:flux-system:"+controller)
		if strings.TrimSpace(can) != "no" {
			t.Errorf("may %s list all Secrets? %s", controller, can)
		}
	}

	const want = "oci.example.com/acme/app:1.1.0"
	// An automation that has found no tag yet is ready too.
	pushed := ""
	testwait.For(t, "the automation to push", patience, func() (bool, string) {
		pushed = r.field("flux-system", "imageupdateautomation/app", ".status.lastPushCommit")
		return pushed != "", r.field("flux-system", "imageupdateautomation/app", ".status")
	})
	policy := r.field("flux-system", "imagepolicy/app", ".status.latestRef.name")
	if tag := r.field("flux-system", "imagepolicy/app", ".status.latestRef.tag"); policy+":"+tag != want {
		t.Errorf("the policy chose %s:%s, want %s", policy, tag, want)
	}
	served, _ := r.Git.Head("https://git.example.com/acme/app", "main")
	if pushed != served {
		t.Errorf("the repository is served at %q, want what the controller pushed, %q", served, pushed)
	}
	r.until("Kustomization/flux-system/app", "applies what was pushed", func(row flux.Row) bool {
		return row.Ready == "True" && strings.Contains(row.Revision, served[:8])
	})
	if got := r.field("default", "configmap/app", ".data.image"); got != want {
		t.Errorf("the cluster has image %q, want %q", got, want)
	}
	if diff := cmp.Diff(before, everyFile(t, app)); diff != "" {
		t.Errorf("the user's repository changed: -before +after:\n%s", diff)
	}
	key := mustKey(t)
	protect(t, r.Cluster, "https://git.example.com/acme/app", key)
	r.kubectl(sshSecret(t, r.Cluster, key)+"---"+automationOverSSH, "apply", "-f", "-")
	r.until("ImageUpdateAutomation/flux-system/ssh", "is ready", func(row flux.Row) bool { return row.Ready == "True" })
}

// lockDown applies the multi-tenant profile to a fleet before the start.
func lockDown(t *testing.T, dir string, opts lockdown.Options) {
	t.Helper()
	f, err := layout.Load(dir, "clusters/test", layout.Options{
		Components: config.FluxComponents(),
		Optional:   []layout.Optional{{Group: "image.toolkit.fluxcd.io", Manifests: config.FluxImageComponents()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := lockdown.Make(f, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Write(dir); err != nil {
		t.Fatal(err)
	}
}

// generator is an object of source-watcher, and generatorSync are Kustomizations that apply its artifact and one from a
// registry.
const (
	generator = `apiVersion: source.extensions.fluxcd.io/v1beta1
kind: ArtifactGenerator
metadata: {name: parts, namespace: flux-system}
spec:
  sources: [{alias: fleet, kind: GitRepository, name: flux-system}]
  artifacts: [{name: apps, copy: [{from: "@fleet/apps/**", to: "@artifact/"}]}]
`
	generatorSync = `---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: parts, namespace: flux-system}
spec: {interval: 1m, retryInterval: 2s, path: ./, prune: true, targetNamespace: default, sourceRef: {kind: ExternalArtifact, name: apps}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: pushed, namespace: flux-system}
spec: {interval: 1m, url: "oci://oci.example.com/acme/pushed", ref: {tag: v1}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: pushed, namespace: flux-system}
spec: {interval: 1m, retryInterval: 2s, path: ./, prune: true, sourceRef: {kind: OCIRepository, name: pushed}}
`
)

// TestArtifactGenerator runs a fleet with an object of source-watcher and a source in a registry: kustomize-controller
// fetches all kinds of artifacts through the artifact proxy. Only the controllers that the fleet requests run.
func TestArtifactGenerator(t *testing.T) {
	t.Parallel()
	dir, _ := newFleet(t, map[string]string{
		"clusters/test/generator.yaml": generator + generatorSync,
		system + "kustomization.yaml":  "resources: [gotk-components.yaml, gotk-sync.yaml]\npatches:\n" + fewHosts,
	})
	pushed := newFolder(t, map[string]string{"state.yaml": configMap("pushed", "v1")})
	r, failed := start(t, localcluster.Options{Fleet: dir, Path: "clusters/test", Maps: parseMaps(t, "oci://oci.example.com/acme/pushed:v1="+pushed)})
	expectNothing(t, "a fleet with an ArtifactGenerator is ready", failed)
	if got := r.field("flux-system", "artifactgenerators", ".items[*].metadata.name"); got != "parts" {
		t.Errorf("the cluster has the generators %q, want the fleet's", got)
	}
	r.until("ExternalArtifact/flux-system/apps", "is made", func(row flux.Row) bool { return row.Ready == "True" })
	for _, name := range []string{"parts", "pushed"} {
		r.until("Kustomization/flux-system/"+name, "is applied", func(row flux.Row) bool { return row.Ready == "True" })
	}
	want := "helm-controller kustomize-controller notification-controller source-controller source-watcher"
	if got := r.field("flux-system", "deployments", ".items[*].metadata.name"); got != want {
		t.Errorf("the fleet runs %q, want %q", got, want)
	}
}

// everyFile returns a digest of each file below a folder, including the files of git.
func everyFile(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

package localcluster

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
	"golang.org/x/crypto/ssh"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// loadFleet reads the fleet's folder and adds the fleet's own address to the maps.
func (c *Cluster) loadFleet() error {
	if c.opts.Fleet == "" {
		return nil
	}
	dir, err := filepath.Abs(c.opts.Fleet)
	if err != nil {
		return fmt.Errorf("cannot read the fleet: %w", err)
	}
	options := layout.Options{
		Components: config.FluxComponents(),
		Optional: []layout.Optional{
			{Group: "image.toolkit.fluxcd.io", Manifests: config.FluxImageComponents()},
			{Group: "source.extensions.fluxcd.io", Manifests: config.FluxSourceWatcher(), Components: config.FluxArtifactComponents()},
		},
	}
	for _, m := range c.opts.Maps {
		if abs, err := filepath.Abs(m.Dir); err == nil && abs == dir {
			options.URL, options.Branch = m.URL, m.Branch
			break
		}
	}
	if options.Branch == "" {
		options.Branch = "main"
	}
	if c.Fleet, err = layout.Load(dir, c.opts.Path, options); err != nil {
		return err
	}
	mapAddress := c.mapFleet
	switch {
	case c.hasInstance():
		mapAddress = c.mapOperatorFleet
	case c.Fleet.Sync.Kind == string(flux.OCIRepository):
		mapAddress = c.mapArtifact
	}
	if err := mapAddress(dir); err != nil {
		return err
	}
	return c.alignVersion()
}

// mapFleet maps the address of the fleet's root GitRepository to its folder.
func (c *Cluster) mapFleet(dir string) error {
	address, err := githost.Address(c.Fleet.Sync.URL)
	if err != nil {
		return fmt.Errorf("cannot map the fleet's own address: %w", err)
	}
	mapped := slices.ContainsFunc(c.opts.Maps, func(m network.Map) bool {
		other, err := githost.Address(m.URL)
		return err == nil && other == address && (m.Branch == "" || m.Branch == c.Fleet.Sync.Branch)
	})
	if !mapped {
		// Map the branch that the cluster follows, whatever branch is checked out:
		// the cluster runs the fleet as it will be after the merge.
		c.opts.Maps = append(c.opts.Maps, network.Map{
			Kind: network.KindGit, URL: c.Fleet.Sync.URL, Branch: c.Fleet.Sync.Branch, Dir: dir,
		})
	}
	return nil
}

// mapArtifact maps the address of the fleet's root OCIRepository to its folder, unless the user
// maps a tag of this address.
func (c *Cluster) mapArtifact(dir string) error {
	sync := c.Fleet.Sync
	address, err := ocihost.ParseAddress(sync.URL)
	if err != nil {
		return fmt.Errorf("cannot map the fleet's own address: %w", err)
	}
	for _, m := range c.opts.Maps {
		other, err := ocihost.ParseAddress(m.URL)
		if err == nil && other.Host == address.Host && other.Repository == address.Repository && m.Dir == dir && (sync.Branch == "" || other.Tag == sync.Branch) {
			c.artifact = other
			return nil
		}
	}
	address.Tag = sync.Branch
	if address.Tag == "" {
		return fmt.Errorf("cannot map the fleet's own address: %s/%s selects no tag by its name: name a tag that it selects with --map %s:TAG=%s", sync.Namespace, sync.Source, sync.URL, dir)
	}
	c.artifact = address
	c.opts.Maps = append(c.opts.Maps, network.Map{Kind: network.KindOCI, URL: address.String(), Dir: dir})
	return nil
}

// export writes the fleet as the controllers fetch it into a folder.
func (c *Cluster) export(ctx context.Context, dir string) error {
	if c.Fleet.Sync.Kind == string(flux.OCIRepository) {
		return c.OCI.Export(c.artifact, dir)
	}
	return c.Git.Export(ctx, c.Fleet.Sync.URL, c.Fleet.Sync.Branch, dir)
}

// fleetObjects are the objects that are applied before Flux takes over.
type fleetObjects struct {
	// kinds are the CRDs in the system folder, root the Flux objects there, which
	// sync the fleet, and system all other objects.
	kinds, system, root []*unstructured.Unstructured
	// manual are the objects that the admin applies by hand, and the root source's
	// Secret.
	manual []*unstructured.Unstructured
}

// readFleet builds the system folder as Git serves it, and reads the other objects
// to apply. Errors in them show before anything is started.
func (c *Cluster) readFleet(ctx context.Context) error {
	var err error
	if c.objects.manual, err = c.readManual(); err != nil {
		return err
	}
	kinds, err := c.readKinds()
	if err != nil {
		return err
	}
	defer func() { c.addKinds(kinds) }()
	if c.Fleet == nil {
		// In a bare cluster, a bootstrap installs Flux in this namespace.
		c.platforms = map[string]bool{"flux-system": true}
		return nil
	}
	if c.hasOperator() {
		if err := c.readOperator(); err != nil {
			return err
		}
	}
	if c.hasInstance() {
		return c.readInstance()
	}
	c.assumeFlags()
	checkout := filepath.Join(c.Dir, "fleet")
	defer os.RemoveAll(checkout)
	if err := c.export(ctx, checkout); err != nil {
		return err
	}
	system := filepath.Join(checkout, filepath.FromSlash(c.Fleet.System))
	err = flux.FetchBases(checkout, system, func(base flux.RemoteBase, dir string) (string, error) {
		return c.bases().Fetch(ctx, base, dir)
	})
	if err != nil {
		return fmt.Errorf("cannot read the fleet: %s: %w", c.Fleet.System, err)
	}
	objects, err := flux.Build(checkout, system)
	if err != nil {
		return fmt.Errorf("cannot read the fleet: %s: %w", c.Fleet.System, err)
	}
	for _, u := range objects {
		switch {
		case u.GetKind() == "CustomResourceDefinition":
			c.objects.kinds = append(c.objects.kinds, u)
		case strings.HasSuffix(u.GroupVersionKind().Group, ".toolkit.fluxcd.io"):
			c.Fleet.Sync.Resolve(u)
			c.objects.root = append(c.objects.root, u)
		default:
			c.objects.system = append(c.objects.system, u)
		}
	}
	c.addRoots()
	c.nameRootAccount()
	folder := filepath.Join(checkout, filepath.FromSlash(c.Fleet.System))
	if err := checkServed(c.objects.kinds, c.objects.root, folder, c.Fleet.System); err != nil {
		return err
	}
	c.setPlatform(append(objects, c.objects.system...))
	secret, err := c.rootSecret(objects)
	c.objects.manual = append(c.objects.manual, withNamespaces(secret, c.objects.system)...)
	c.objects.root = withNamespaces(c.objects.root, slices.Concat(c.objects.system, c.objects.manual))
	return err
}

// assumeFlags records that the flags of Flux's controllers are not in the repository, and how to tell
// them.
func (c *Cluster) assumeFlags() {
	name, _, err := c.Fleet.ComponentsFile()
	if !c.Fleet.FlagsUnknown || err != nil { // the overlay has the file, which cannot fail
		return
	}
	c.addFake(Fake{Assumed: true, Text: fmt.Sprintf("the flags of Flux's controllers are not in the repository, so Flux runs with its defaults, without a lockdown: if your cluster has other flags, "+
		"put its manifests of Flux into %s, or an empty file with this name, and the patches into the kustomization.yaml beside it", name)})
}

// withNamespaces returns the objects behind those of their namespaces that the installed objects lack: a
// bootstrap into another namespace than flux-system makes it.
func withNamespaces(objects, installed []*unstructured.Unstructured) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, u := range objects {
		if u.GetNamespace() != "" && !slices.ContainsFunc(slices.Concat(installed, all), func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Namespace" && o.GetName() == u.GetNamespace()
		}) {
			namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
			namespace.SetName(u.GetNamespace())
			all = append(all, namespace)
		}
		all = append(all, u)
	}
	return all
}

// Installed returns the objects that the cluster applied as a bootstrap does: Flux's manifests,
// and the root objects.
func (c *Cluster) Installed() []*unstructured.Unstructured {
	return slices.Concat(c.objects.kinds, c.objects.system, c.objects.root)
}

// addRoots adds the root objects that the system folder does not have.
func (c *Cluster) addRoots() {
	for i := range c.Fleet.Roots {
		root := &c.Fleet.Roots[i]
		if !slices.ContainsFunc(c.objects.root, func(u *unstructured.Unstructured) bool {
			return u.GetKind() == root.GetKind() && u.GetNamespace() == root.GetNamespace() && u.GetName() == root.GetName()
		}) {
			c.objects.root = append(c.objects.root, root)
		}
	}
}

// nameRootAccount has an invented root Kustomization apply as the account of kustomize-controller, if this controller
// takes another account for objects that name none: what makes the root on the real cluster gives it the
// platform's rights, and the account that is the default may come only with the fleet.
func (c *Cluster) nameRootAccount() {
	if !c.Fleet.RootInvented {
		return
	}
	for _, u := range c.objects.system {
		if u.GetKind() != "Deployment" || u.GetName() != "kustomize-controller" || u.GetNamespace() != c.Fleet.Sync.Namespace {
			continue
		}
		var deployment appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &deployment); err != nil {
			continue // the API server refuses it
		}
		pod := deployment.Spec.Template.Spec
		if !slices.ContainsFunc(pod.Containers, func(container corev1.Container) bool {
			return slices.ContainsFunc(container.Args, func(arg string) bool {
				account, set := strings.CutPrefix(arg, "--default-service-account=")
				return set && account != ""
			})
		}) {
			continue
		}
		for _, root := range c.objects.root {
			if root.GetKind() == string(flux.Kustomization) && root.GetNamespace() == c.Fleet.Sync.Namespace && root.GetName() == c.Fleet.Sync.Kustomization {
				_ = unstructured.SetNestedField(root.Object, pod.ServiceAccountName, "spec", "serviceAccountName") // spec is an object
				c.addFake(Fake{Assumed: true, Text: fmt.Sprintf("the root Kustomization is not in the repository: %s/%s applies %s as account %s", root.GetNamespace(), root.GetName(), c.Fleet.Path, pod.ServiceAccountName)})
			}
		}
	}
}

// installKinds applies Flux's CRDs and those of --crds.
func (c *Cluster) installKinds(ctx context.Context, config *rest.Config) error {
	if err := flux.ApplyManifests(ctx, config, c.objects.kinds); err != nil {
		return fmt.Errorf("cannot install the kinds of Flux and of --crds: %w", err)
	}
	return nil
}

// fluxStep names the step that installs Flux. It is "" if there is no fleet, so that the step applies
// other manifests at most, and nothing is shown.
func (c *Cluster) fluxStep() string {
	if c.Fleet == nil {
		return ""
	}
	return "Flux"
}

// installFlux does the work of a bootstrap: it applies Flux's manifests from the
// fleet, then the objects that the admin applies by hand, then the root objects.
func (c *Cluster) installFlux(ctx context.Context) error {
	if err := flux.ApplyManifests(ctx, c.REST, c.objects.system); err != nil {
		return fmt.Errorf("cannot install Flux: %w", withKind(err))
	}
	if c.hasInstance() {
		if err := c.awaitOperator(ctx); err != nil {
			return err
		}
	}
	if err := c.awaitKyverno(ctx); err != nil {
		return err
	}
	if err := flux.ApplyManifests(ctx, c.REST, c.objects.manual); apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot apply the manifests of --apply: %w: they are applied before the fleet, so add their Namespace to --apply", err)
	} else if err != nil {
		return fmt.Errorf("cannot apply the manifests of --apply: %w", err)
	}
	if err := c.assume(ctx); err != nil {
		return err
	}
	if err := c.admitKyverno(ctx); err != nil {
		return err
	}
	if err := flux.ApplyManifests(ctx, c.REST, c.objects.root); err != nil {
		return fmt.Errorf("cannot apply the root objects in %s: %w", c.Fleet.System, withKind(err))
	}
	return nil
}

// withKind adds the way out to an error about a kind that the cluster does not have.
func withKind(err error) error {
	missing := missingKind.FindStringSubmatch(err.Error())
	if missing == nil {
		return err
	}
	return fmt.Errorf("%w: the fleet's manifests of Flux lack the CRD of %s: give it with --crds DIR", err, missing[1])
}

// assume suspends the objects of --assume and keeps their status Ready.
func (c *Cluster) assume(ctx context.Context) error {
	if len(c.assumed) == 0 && !c.opts.AssumeUnmapped {
		return nil
	}
	kube, err := flux.NewClient(c.REST)
	if err != nil {
		return err
	}
	if err := flux.SuspendAssumed(ctx, kube, c.assumed); err != nil {
		return err
	}
	c.run("assumptions", func() error { return flux.KeepAssumed(c.life, kube, c.assumptions(kube)) })
	return nil
}

// setPlatform stores the namespaces of the Deployments of Flux and Kyverno. Only Pods in these
// namespaces may become processes.
func (c *Cluster) setPlatform(objects []*unstructured.Unstructured) {
	c.platformMu.Lock()
	defer c.platformMu.Unlock()
	c.platforms = map[string]bool{}
	if c.kyverno != nil {
		objects = slices.Concat(objects, c.kyverno.system)
		for _, namespace := range c.kyverno.Namespaces {
			c.platforms[namespace] = true
		}
	}
	for _, u := range objects {
		if u.GetKind() == "Deployment" {
			c.platforms[u.GetNamespace()] = true
		}
	}
}

func (c *Cluster) platform(namespace string) bool {
	c.platformMu.Lock()
	defer c.platformMu.Unlock()
	return c.platforms[namespace]
}

// readManual reads the manifests that the admin applies by hand.
func (c *Cluster) readManual() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range c.opts.Apply {
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("cannot read --apply: %w", err)
		}
		files := []string{name}
		if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(name, "*.y*ml")); err != nil {
				return nil, fmt.Errorf("cannot read --apply: %w", err)
			}
			if len(files) == 0 {
				return nil, fmt.Errorf("cannot read --apply: %s has no .yaml and no .yml file", name)
			}
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("cannot read --apply: %w", err)
			}
			parsed, err := flux.ReadObjects(content)
			if err != nil {
				return nil, fmt.Errorf("cannot read --apply %s: %w", file, err)
			}
			objects = append(objects, parsed...)
		}
	}
	return objects, nil
}

// rootSecret returns the Secret that a bootstrap creates for the root source, since
// it is never in Git. It returns none if the root source needs no Secret or the
// objects contain it. The mapped repositories accept any credentials.
func (c *Cluster) rootSecret(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	sync := c.Fleet.Sync
	if sync.SecretRef == "" || slices.ContainsFunc(objects, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "Secret" && u.GetName() == sync.SecretRef && u.GetNamespace() == sync.Namespace
	}) {
		return nil, nil
	}
	secret := map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": sync.SecretRef, "namespace": sync.Namespace},
	}
	if sync.Kind == string(flux.OCIRepository) {
		data, err := dockerConfig(sync.URL)
		if err != nil {
			return nil, err
		}
		secret["type"] = string(corev1.SecretTypeDockerConfigJson)
		secret["stringData"] = map[string]any{corev1.DockerConfigJsonKey: data[corev1.DockerConfigJsonKey]}
		return []*unstructured.Unstructured{{Object: secret}}, nil
	}
	data, err := c.credentials(sync.URL)
	if err != nil {
		return nil, err
	}
	secret["stringData"] = data
	return []*unstructured.Unstructured{{Object: secret}}, nil
}

// credentials returns the data of a Secret for a Git repository.
func (c *Cluster) credentials(address string) (map[string]any, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "ssh" {
		return map[string]any{"username": "git", "password": "local"}, nil
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a deploy key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return nil, fmt.Errorf("cannot make a deploy key: %w", err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("cannot make a deploy key: %w", err)
	}
	return map[string]any{
		"identity":     string(pem.EncodeToMemory(block)),
		"identity.pub": string(ssh.MarshalAuthorizedKey(public)),
		"known_hosts":  string(c.Git.KnownHosts(u.Host)),
	}, nil
}

// preview makes the controllers see a change in a mapped folder at once. It requests
// a reconcile of the sources that fetch the folder, instead of waiting for their
// interval, and of the objects that wait for a dependency.
func (c *Cluster) preview(context.Context) error {
	if c.Fleet == nil {
		return nil
	}
	kube, err := flux.NewClient(c.REST)
	if err != nil {
		return err
	}
	if c.opts.FakeSecrets {
		c.run("invention of Secrets", func() error { return c.fakeSecrets(kube) })
	}
	c.run("signatures", func() error { return c.skipSignatures(kube) })
	c.run("cloud identities", func() error { return c.skipCloudIdentities(kube) })
	c.run("wake-up of dependents", func() error { return flux.WakeDependents(c.life, kube) })
	changed := newChangedFolders()
	c.run("live preview", func() error {
		c.askSources(kube, changed)
		return nil
	})
	c.run("live preview", func() error {
		return c.Git.Watch(c.life, func(change githost.Change) {
			if change.Err != nil {
				c.report(change.Err)
				return
			}
			changed.Add(change.URL)
		})
	})
	c.run("live preview", func() error { return c.followFolders(changed) })
	return nil
}

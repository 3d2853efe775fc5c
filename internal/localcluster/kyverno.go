package localcluster

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// kyvernoPrograms are the programs that fleets with Kyverno need, and kyvernoConfig is the folder
// beside them with Kyverno's manifests. They are built on demand and are no part of a release.
var kyvernoPrograms = []string{"kyverno", "kyverno-background-controller"}

const kyvernoConfig, kyvernoInstall = "kyverno-config", "install-latest-testing.yaml"

// kyvernoModule is the module of the programs, whose version they record.
const kyvernoModule = "github.com/kyverno/kyverno"

// kyverno is Kyverno in a cluster.
type kyverno struct {
	layout.Kyverno
	// version is the version of the programs.
	version string
	// system are the manifests without the CRDs.
	system []*unstructured.Unstructured
}

// findKyverno looks for Kyverno in the fleet. If its programs are not built, it reports that the
// policies do not count, and the cluster starts without them.
func (c *Cluster) findKyverno() {
	use := c.Fleet.Kyverno()
	if !use.Policies && !use.Installed {
		return
	}
	found := &kyverno{Kyverno: use}
	for _, name := range kyvernoPrograms {
		info, err := buildinfo.ReadFile(filepath.Join(c.opts.BinDir, name))
		if err != nil {
			c.opts.Report(errors.New("the fleet uses Kyverno, which is not built: its policies refuse and generate nothing here; build it with `make kyverno` in Tenure's repository, once"))
			return
		}
		for _, dep := range info.Deps {
			if dep.Path == kyvernoModule {
				found.version = dep.Version
			}
		}
	}
	c.kyverno = found
}

// serveKyverno reads Kyverno's manifests. It maps the addresses at which the fleet expects them,
// or adds them to the objects that the cluster installs if the fleet only has policies. The
// CRDs are always installed by the cluster.
func (c *Cluster) serveKyverno() error {
	if c.kyverno == nil {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(c.opts.BinDir, kyvernoConfig, kyvernoInstall))
	if err != nil {
		return fmt.Errorf("cannot read Kyverno's manifests: %w; build them with `make kyverno`", err)
	}
	objects, err := flux.ReadObjects(content)
	if err != nil {
		return fmt.Errorf("cannot read Kyverno's manifests: %w", err)
	}
	for _, u := range objects {
		if u.GetKind() == "CustomResourceDefinition" {
			c.objects.kinds = append(c.objects.kinds, u)
			continue
		}
		c.kyverno.system = append(c.kyverno.system, u)
	}
	if !c.kyverno.Installed {
		c.objects.system = append(c.objects.system, c.kyverno.system...)
		return nil
	}
	return c.mapKyverno()
}

// mapKyverno maps the addresses of Kyverno's manifests to the built version's, unless the user
// has mapped them.
func (c *Cluster) mapKyverno() error {
	mapped := slices.ContainsFunc(c.opts.Maps, func(m network.Map) bool { return strings.HasPrefix(m.URL, layout.KyvernoManifests) })
	if mapped || len(c.kyverno.Artifacts) == 0 {
		return nil
	}
	dir := filepath.Join(c.Dir, "kyverno")
	if err := writeManifests(filepath.Join(dir, "install.yaml"), c.kyverno.system); err != nil {
		return fmt.Errorf("cannot serve Kyverno's manifests: %w", err)
	}
	var addresses []string
	for _, artifact := range c.kyverno.Artifacts {
		addresses = append(addresses, layout.KyvernoManifests+":"+cmp.Or(artifact.Tag, c.kyverno.version))
	}
	slices.Sort(addresses)
	for _, address := range slices.Compact(addresses) {
		c.opts.Maps = append(c.opts.Maps, network.Map{Kind: network.KindOCI, URL: address, Dir: dir})
	}
	return nil
}

// writeManifests writes objects as a YAML stream.
func writeManifests(file string, objects []*unstructured.Unstructured) error {
	var stream bytes.Buffer
	for _, u := range objects {
		document, err := yaml.Marshal(u.Object)
		if err != nil {
			return err
		}
		stream.WriteString("---\n")
		stream.Write(document)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, stream.Bytes(), 0o600)
}

// admitKyverno lets the fleet's source fetch Kyverno's manifests without their authors'
// signature, which only the artifact that they published has.
func (c *Cluster) admitKyverno(ctx context.Context) error {
	if c.kyverno == nil || !slices.ContainsFunc(c.kyverno.Artifacts, func(a layout.Artifact) bool { return a.Verified }) {
		return nil
	}
	kube, err := flux.NewClient(c.REST)
	if err != nil {
		return err
	}
	return flux.SkipVerification(ctx, kube, layout.KyvernoManifests)
}

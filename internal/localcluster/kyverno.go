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
	"time"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"
)

// kyvernoPrograms are the programs that fleets with Kyverno need, and kyvernoConfig and
// kyvernoCharts are the folders beside them with Kyverno's manifests and charts. They are built on
// demand and are no part of a release.
var kyvernoPrograms = []string{"kyverno", "kyverno-background-controller"}

const kyvernoConfig, kyvernoInstall, kyvernoCharts = "kyverno-config", "install-latest-testing.yaml", "kyverno-charts"

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

// describe returns the version of Kyverno that runs, and the versions that the fleet names instead,
// or "" without Kyverno.
func (k *kyverno) describe() string {
	if k == nil {
		return ""
	}
	var named []string
	for _, artifact := range k.Artifacts {
		if artifact.Tag != "" && artifact.Tag != k.version {
			named = append(named, artifact.Tag)
		}
	}
	for _, chart := range k.Charts {
		if chart != "" {
			named = append(named, "chart "+chart)
		}
	}
	if len(named) == 0 {
		return "Kyverno " + k.version
	}
	return "Kyverno " + k.version + " (the fleet names " + strings.Join(named, ", ") + ")"
}

// findKyverno looks for Kyverno in the fleet and in the mapped repositories. If its programs are not built, it reports that the
// policies do not count, and the cluster starts without them.
func (c *Cluster) findKyverno() {
	var others []string
	for _, m := range c.opts.Maps {
		if m.Kind != network.KindHelm && m.Kind != network.KindFile && m.Dir != c.Fleet.Dir {
			others = append(others, m.Dir)
		}
	}
	use := c.Fleet.Kyverno(others...)
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
func (c *Cluster) serveKyverno(context.Context) error {
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
			withoutDescriptions(u.Object["spec"])
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

// withoutDescriptions removes the texts of a schema. They are three quarters of Kyverno's CRDs,
// cost time and memory of the API server, and only kubectl explain shows them.
func withoutDescriptions(schema any) {
	switch value := schema.(type) {
	case map[string]any:
		if _, text := value["description"].(string); text {
			delete(value, "description")
		}
		for _, part := range value {
			withoutDescriptions(part)
		}
	case []any:
		for _, part := range value {
			withoutDescriptions(part)
		}
	}
}

// mapKyverno maps the addresses of Kyverno's manifests and chart to the built version's, unless
// the user has mapped them.
func (c *Cluster) mapKyverno() error {
	dir := filepath.Join(c.Dir, "kyverno")
	if len(c.kyverno.Artifacts) > 0 {
		if err := writeManifests(filepath.Join(dir, "manifests", "install.yaml"), c.kyverno.system); err != nil {
			return fmt.Errorf("cannot serve Kyverno's manifests: %w", err)
		}
	}
	for _, artifact := range c.kyverno.Artifacts {
		c.mapUnlessMapped(network.Map{
			Kind: network.KindOCI, URL: layout.KyvernoManifests + ":" + cmp.Or(artifact.Tag, c.kyverno.version),
			Dir: filepath.Join(dir, "manifests"),
		})
	}
	for _, version := range c.kyverno.Charts {
		chart := filepath.Join(dir, "charts", cmp.Or(version, "newest"))
		if err := copyChart(filepath.Join(c.opts.BinDir, kyvernoCharts, "kyverno"), chart, version); err != nil {
			return fmt.Errorf("cannot serve Kyverno's chart: %w; build it with `make kyverno`", err)
		}
		tag := ""
		if version != "" {
			tag = ":" + version
		}
		c.mapUnlessMapped(network.Map{Kind: network.KindOCI, URL: layout.KyvernoChart + tag, Dir: chart})
		c.mapUnlessMapped(network.Map{Kind: network.KindHelm, URL: layout.KyvernoCharts, Dir: filepath.Dir(chart)})
	}
	return nil
}

func (c *Cluster) mapUnlessMapped(m network.Map) {
	if !slices.ContainsFunc(c.opts.Maps, func(other network.Map) bool { return strings.TrimSuffix(other.URL, "/") == m.URL }) {
		c.opts.Maps = append(c.opts.Maps, m)
	}
}

// copyChart copies a chart without the charts that it depends on, and sets its version unless it
// is "". Kyverno's chart depends on charts with its CRDs, which the cluster has installed, and on
// some that are off by default; its module has not all of them.
func copyChart(from, to, version string) error {
	content, err := os.ReadFile(filepath.Join(from, "Chart.yaml"))
	if err != nil {
		return err
	}
	var metadata map[string]any
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		return err
	}
	delete(metadata, "dependencies")
	if version != "" {
		metadata["version"] = version
	}
	if content, err = yaml.Marshal(metadata); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(to, "templates"), os.DirFS(filepath.Join(from, "templates"))); err != nil {
		return err
	}
	values, err := os.ReadFile(filepath.Join(from, "values.yaml"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "values.yaml"), values, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "Chart.yaml"), content, 0o600)
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

// kyvernoPatience limits the wait for Kyverno on a slow and busy machine.
const kyvernoPatience = 3 * time.Minute

// awaitKyverno waits until Kyverno is ready, if the cluster has installed it: the policies of a
// fleet without Kyverno count on it, and nothing in the fleet waits for it.
func (c *Cluster) awaitKyverno(ctx context.Context) error {
	if c.kyverno == nil || c.kyverno.Installed {
		return nil
	}
	const namespace, name = "kyverno", "kyverno-admission-controller"
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, kyvernoPatience, true, func(ctx context.Context) (bool, error) {
		deployment, err := c.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && deployment.Status.ReadyReplicas > 0, nil
	})
	if err != nil {
		return fmt.Errorf("cannot wait for Deployment %s/%s: %w; see its log in %s", namespace, name, err, c.opts.Data)
	}
	return nil
}

// admitKyverno lets the fleet's source fetch Kyverno's manifests without a signature: only the
// artifact that Kyverno's authors published has their signature.
func (c *Cluster) admitKyverno(ctx context.Context) error {
	if len(c.unsigned()) == 0 {
		return nil
	}
	kube, err := flux.NewClient(c.REST)
	if err != nil {
		return err
	}
	return flux.SkipVerification(ctx, kube, c.unsigned(), nil)
}

// unsigned returns the addresses of manifests whose signature no source of the fleet verifies here.
func (c *Cluster) unsigned() []string {
	if c.kyverno == nil || !slices.ContainsFunc(c.kyverno.Artifacts, func(a layout.Artifact) bool { return a.Verified }) {
		return nil
	}
	return []string{layout.KyvernoManifests}
}

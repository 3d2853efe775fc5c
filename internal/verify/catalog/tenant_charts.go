package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// chartVersion returns the version, which is also the tag, of the chart of an attack with files in a folder
// of the tenant's artifact.
func chartVersion(folder string) string {
	return "1.0.0-" + strings.ReplaceAll(strings.TrimPrefix(folder, attackFolder+"/"), "/", "-")
}

// chartName is the name of the charts of attacks, and of their repository below the repository of the
// tenant's artifact. A policy that allows the address of the artifact alone, or addresses by prefix, also
// allows theirs.
const chartName = "tenure-attacks"

// pushCharts pushes the charts among the files of attacks below the tenant's artifact, each with a tag of
// its own: helm-controller does not install a chart from an artifact of manifests. It returns a function
// that removes the charts and is never nil.
func (e *Scenario) pushCharts(files map[string][]byte) (remove func(), err error) {
	base, err := ocihost.ParseAddress(e.Repository.URL)
	if err != nil {
		return func() {}, err
	}
	dir, err := os.MkdirTemp("", "tenure-charts-")
	if err != nil {
		return func() {}, err
	}
	var pushed []ocihost.Address
	remove = func() {
		for _, address := range pushed {
			e.hosts.oci.Remove(address)
		}
		_ = os.RemoveAll(dir)
	}
	for name := range files {
		if path.Base(name) != "Chart.yaml" {
			continue
		}
		address := base
		address.Repository, address.Tag = base.Repository+"/"+chartName, chartVersion(path.Dir(name))
		to := filepath.Join(dir, address.Tag)
		if err := writeChart(to, path.Dir(name), files, chartName, address.Tag); err != nil {
			return remove, err
		}
		if err := e.hosts.oci.Add(address, to); err != nil {
			return remove, err
		}
		pushed = append(pushed, address)
	}
	return remove, nil
}

// writeChart writes the files of a chart into a local folder, with another name and version.
func writeChart(to, folder string, files map[string][]byte, name, version string) error {
	var errs []error
	for file, content := range files {
		inside, ok := strings.CutPrefix(file, folder+"/")
		if !ok {
			continue
		}
		if inside == "Chart.yaml" {
			content = fmt.Appendf(nil, "apiVersion: v2\nname: %s\nversion: %s\n", name, version)
		}
		target := filepath.Join(to, filepath.FromSlash(inside))
		errs = append(errs, os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, content, 0o600))
	}
	return errors.Join(errs...)
}

// makeChartSource creates a HelmRepository for the charts of [Scenario.pushCharts], with the
// credentials of the tenant's source if it can use them.
func (e *Scenario) makeChartSource(ctx context.Context) (*unstructured.Unstructured, error) {
	theirs := object(sourceAPI, string(e.Repository.Source.Kind), e.Repository.Source.Namespace, e.Repository.Source.Name, nil)
	if err := e.Admin.Get(ctx, keyOf(theirs), theirs); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", e.Repository.Source, err)
	}
	spec := map[string]any{"type": "oci", "interval": "1h", "url": e.Repository.URL}
	if secret, ok, _ := unstructured.NestedMap(theirs.Object, "spec", "secretRef"); ok && theirs.GetNamespace() == e.Namespace {
		spec["secretRef"] = secret
	}
	u := object(sourceAPI, string(flux.HelmRepository), e.Namespace, name("charts"+e.suffix), map[string]any{"spec": spec})
	if err := e.Admin.Create(ctx, u); err != nil {
		return nil, fmt.Errorf("cannot make a source for the charts of the attacks: %w", err)
	}
	e.charts = u.GetName()
	return u, nil
}

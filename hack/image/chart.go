package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"
)

// The media types of a chart in a registry: Helm's HIP 6.
const (
	chartConfigType  = "application/vnd.cncf.helm.config.v1+json"
	chartContentType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

const (
	// chartDir is the folder of the chart in the repository.
	chartDir = "charts/tenure"
	// chartName is the name of the chart.
	chartName = "tenure"
)

// chart is the packaged Helm chart.
type chart struct {
	version string // without v
	archive []byte
	image   v1.Image // the artifact in a registry
}

// chartVersion returns the version of the program as Helm writes versions, without v.
func (s *source) chartVersion() string { return strings.TrimPrefix(s.tag(), "v") }

// chart packages the chart for an image. The same sources, version and name of the image give the
// same bytes on every machine.
func (s *source) chart(repository, tag string) (*chart, error) {
	c := &chart{version: s.chartVersion()}
	changes := map[string][]line{
		"Chart.yaml": {{"version", c.version}, {"appVersion", s.tag()}},
	}
	changes["values.yaml"] = []line{{"  repository", repository}}
	if tag != s.tag() {
		changes["values.yaml"] = append(changes["values.yaml"], line{"  tag", tag})
	}
	var files []file
	var metadata []byte
	dir := filepath.Join(s.root, filepath.FromSlash(chartDir))
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		at := filepath.ToSlash(relative)
		for _, l := range changes[at] {
			if content, err = l.set(content); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
		}
		if at == "Chart.yaml" {
			metadata = content
		}
		files = append(files, file{name: chartName + "/" + at, mode: 0o644, content: content})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot package the chart: %w", err)
	}
	if c.archive, err = archiveOf(files, s.created); err != nil {
		return nil, fmt.Errorf("cannot package the chart: %w", err)
	}
	config, err := yaml.YAMLToJSON(metadata)
	if err != nil {
		return nil, fmt.Errorf("cannot package the chart: Chart.yaml: %w", err)
	}
	var about struct{ Description string }
	if err := json.Unmarshal(config, &about); err != nil {
		return nil, fmt.Errorf("cannot package the chart: Chart.yaml: %w", err)
	}
	annotations := s.labels()
	annotations["org.opencontainers.image.title"] = chartName
	annotations["org.opencontainers.image.description"] = about.Description
	annotations["org.opencontainers.image.version"] = c.version
	c.image, err = pack(v1.Manifest{Annotations: annotations}, blob{chartConfigType, config}, blob{chartContentType, c.archive})
	return c, err
}

// line is a line of YAML: a key with its indentation, and a value.
type line struct{ key, value string }

// set sets the value of the only line with the key.
func (l line) set(content []byte) ([]byte, error) {
	pattern := regexp.MustCompile(`(?m)^` + l.key + `: .*$`)
	if n := len(pattern.FindAll(content, -1)); n != 1 {
		return nil, fmt.Errorf("it has %d lines with %s, want 1", n, strings.TrimSpace(l.key))
	}
	quoted, err := json.Marshal(l.value)
	if err != nil {
		return nil, err
	}
	return pattern.ReplaceAllLiteral(content, []byte(l.key+": "+string(quoted))), nil
}

// write writes the chart into a folder, under the name that `helm package` gives it.
func (c *chart) write(dir string) error {
	name := filepath.Join(dir, chartName+"-"+c.version+".tgz")
	if err := os.WriteFile(name, c.archive, 0o644); err != nil { //nolint:gosec // it is to be published
		return fmt.Errorf("cannot write the chart: %w", err)
	}
	return nil
}

// beside returns the destination of the chart or of the manifests: the repository with the name
// beside that of the image, with the chart's version as the tag, as Helm expects it.
func (t *target) beside(name, version string) (*target, error) {
	to := *t
	to.tag = t.tag.Registry.Repo(path.Join(path.Dir(t.tag.RepositoryStr()), name)).Tag(version)
	if to.tag.Repository.Name() == t.tag.Repository.Name() {
		return nil, fmt.Errorf("cannot push to %s: the %s goes there: name another repository for the image, such as %s-server", t.tag, contents[name], t.tag.Repository)
	}
	return &to, nil
}

// contents says what a repository beside that of the image holds.
var contents = map[string]string{chartName: "chart", manifestsName: "artifact of the manifests"}

// pushPackage pushes the signatures of the chart or the manifests, if there is a signer, and then
// the artifact with its tag. It returns the digest.
func (t *target) pushPackage(ctx context.Context, artifact v1.Image, s *signer) (v1.Hash, error) {
	subject, err := partial.Descriptor(artifact)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("cannot push %s: %w", t.tag, err)
	}
	signatures, err := attachTo(subject, nil, s, t.tag.Repository.Name())
	if err != nil {
		return v1.Hash{}, err
	}
	pusher, err := remote.NewPusher(t.options...)
	if err != nil {
		return v1.Hash{}, t.explain(err)
	}
	if err := t.pushParts(ctx, pusher, signatures.artifacts); err != nil {
		return v1.Hash{}, err
	}
	if signatures.simple != nil {
		if err := t.pushSimple(ctx, pusher, subject.Digest, signatures.simple); err != nil {
			return v1.Hash{}, err
		}
	}
	if err := pusher.Push(ctx, t.tag, artifact); err != nil {
		return v1.Hash{}, t.explain(err)
	}
	return subject.Digest, nil
}

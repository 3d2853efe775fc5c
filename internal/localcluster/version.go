package localcluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errTooOld reports a fleet whose version of Flux has nothing in common with the local cluster's.
var errTooOld = errors.New("the fleet's Flux is too old for the local cluster")

// fluxGroups is the suffix of the API groups of Flux.
const fluxGroups = ".toolkit.fluxcd.io"

// alignVersion compares the version of Flux in the fleet with the version of the programs. If the
// minor versions differ, the served manifests of Flux get the CRDs of the programs, which cannot
// work with others, and keep the fleet's Deployments. alignVersion reports the difference, and
// the objects of the fleet in versions that the programs do not serve. It returns an error for
// Flux before version 2.
func (c *Cluster) alignVersion() error {
	crds, err := c.programKinds()
	if err != nil {
		return err
	}
	served := servedVersions(crds)
	if c.hasInstance() {
		if err := c.alignDistribution(); err != nil {
			return err
		}
		c.reportGone(served)
		return nil
	}
	name, content, err := c.Fleet.ComponentsFile()
	if err != nil {
		return err
	}
	version, runs := fluxVersionOf(content), config.FluxVersion()
	if version != "" && !strings.HasPrefix(version, "v2.") && !strings.HasPrefix(version, "v3.") {
		return fmt.Errorf("%w: %s has Flux %s, and the local cluster runs %s, which serves %s: upgrade the fleet to Flux 2.%s (`flux migrate -f .` changes the objects, `flux install --export` writes the file), in a copy if need be",
			errTooOld, name, version, runs, servedText(served), strings.TrimPrefix(minor(runs), "v2."))
	}
	if version != "" && minor(version) != minor(runs) {
		aligned, err := replaceKinds(content, crds)
		if err != nil {
			return fmt.Errorf("cannot read the fleet: %s: %w", name, err)
		}
		c.Fleet.Overlay[name] = aligned
		c.opts.Report(fmt.Errorf("%s has Flux %s, and the local cluster runs %s with its own CRDs and the arguments of the fleet's controllers; %s",
			name, version, runs, differences(content, served)))
	}
	c.reportGone(served)
	return nil
}

// programKinds returns the CRDs of the programs.
func (c *Cluster) programKinds() ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	for _, manifests := range [][]byte{config.FluxComponents(), config.FluxImageComponents()} {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			return nil, fmt.Errorf("cannot read Flux's manifests: %w", err)
		}
		for _, u := range objects {
			if u.GetKind() == "CustomResourceDefinition" {
				crds = append(crds, u)
			}
		}
	}
	return crds, nil
}

// versionLabel finds the version that Flux's manifests give themselves.
var versionLabel = regexp.MustCompile(`(?m)^(?:# Flux Version: | +app\.kubernetes\.io/version: )["']?(v\d+\.\d+\.\d+[^\s"']*)`)

// fluxVersionOf returns the version of Flux's manifests, or "" for others.
func fluxVersionOf(content []byte) string {
	if match := versionLabel.FindSubmatch(content); match != nil {
		return string(match[1])
	}
	return ""
}

// servedText names the served versions of the kinds that every fleet has.
func servedText(served map[schema.GroupKind][]string) string {
	var texts []string
	for _, kind := range []flux.Kind{flux.GitRepository, flux.Kustomization, flux.HelmRelease} {
		gk := kind.GroupVersionKind().GroupKind()
		texts = append(texts, gk.Kind+" "+strings.Join(served[gk], " and "))
	}
	return strings.Join(texts, ", ")
}

// replaceKinds returns manifests of Flux with other CRDs of Flux.
func replaceKinds(content []byte, crds []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, doc := range flux.SplitYAML(content) {
		objects, err := flux.ReadObjects(doc)
		if err != nil {
			return nil, err
		}
		if len(objects) == 0 || isKindOfFlux(objects[0]) {
			continue
		}
		out.WriteString("---\n")
		out.Write(bytes.TrimSpace(doc))
		out.WriteByte('\n')
	}
	for _, crd := range crds {
		encoded, err := crd.MarshalJSON()
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(encoded)
	}
	return out.Bytes(), nil
}

func isKindOfFlux(u *unstructured.Unstructured) bool {
	return u.GetKind() == "CustomResourceDefinition" && strings.HasSuffix(u.GetName(), fluxGroups)
}

// differences names the versions that the fleet's Flux serves and the programs do not.
func differences(content []byte, served map[schema.GroupKind][]string) string {
	objects, err := flux.ReadObjects(content)
	if err != nil {
		return "its manifests cannot be compared"
	}
	var gone []string
	for gk, versions := range servedVersions(slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return !isKindOfFlux(u) })) {
		for _, version := range versions {
			if !slices.Contains(served[gk], version) {
				gone = append(gone, gk.Kind+" "+version)
			}
		}
	}
	if len(gone) == 0 {
		return "all of its versions of kinds are still served"
	}
	slices.Sort(gone)
	return "these versions are not served any more: " + strings.Join(gone, ", ")
}

// reportGone reports the objects of the mapped repositories in versions of Flux's API that the
// programs do not serve: they fail, and so does everything that waits for them.
func (c *Cluster) reportGone(served map[schema.GroupKind][]string) {
	for _, m := range c.opts.Maps {
		if m.Kind == network.KindHelm {
			continue
		}
		var gone []string
		// A folder that cannot be read is reported when it is served.
		_ = eachFile(m.Dir, func(name string, content []byte) error {
			if ext := path.Ext(name); (ext == ".yaml" || ext == ".yml") && path.Base(name) != "gotk-components.yaml" {
				gone = append(gone, goneIn(name, content, served)...)
			}
			return nil
		})
		if len(gone) == 0 {
			continue
		}
		named := strings.Join(gone[:min(len(gone), namedFiles)], ", ")
		if more := len(gone) - namedFiles; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		c.opts.Report(fmt.Errorf("%s has objects in versions that Flux %s does not serve any more, and which will fail with all that waits for them, if they are applied: %s; `flux migrate -f %s` changes them",
			m.URL, config.FluxVersion(), named, m.Dir))
	}
}

// goneIn returns the objects of a manifest in versions that are not served, those in the templates of
// ResourceSets too.
func goneIn(name string, content []byte, served map[schema.GroupKind][]string) []string {
	if !bytes.Contains(content, []byte(fluxGroups+"/")) {
		return nil
	}
	isGone := func(gvk schema.GroupVersionKind) bool {
		versions, known := served[gvk.GroupKind()]
		return known && !slices.Contains(versions, gvk.Version)
	}
	var gone []string
	objects, err := flux.ReadObjects(content)
	if err != nil {
		// A patch, or a template of a chart, whose name only Helm knows.
		for _, match := range templateKind.FindAllSubmatch(content, -1) {
			if gvk := schema.FromAPIVersionAndKind(string(match[1]), string(match[2])); isGone(gvk) {
				gone = append(gone, fmt.Sprintf("%s %s (%s)", gvk.Kind, gvk.Version, name))
			}
		}
		return gone
	}
	for _, u := range objects {
		if gvk := u.GroupVersionKind(); isGone(gvk) {
			gone = append(gone, fmt.Sprintf("%s %s %s (%s)", gvk.Kind, u.GetName(), gvk.Version, name))
		}
		if u.GetKind() != string(flux.ResourceSet) {
			continue
		}
		for _, template := range flux.Templates(u) {
			o := unstructured.Unstructured{Object: template}
			if gvk := o.GroupVersionKind(); isGone(gvk) {
				gone = append(gone, fmt.Sprintf("%s %s of ResourceSet %s (%s)", gvk.Kind, gvk.Version, u.GetName(), name))
			}
		}
	}
	return gone
}

// templateKind matches the API version and the kind at the top of an object in a template.
var templateKind = regexp.MustCompile(`(?m)^apiVersion:[ \t]*["']?([\w./-]+)["']?[ \t]*\r?\nkind:[ \t]*["']?(\w+)`)

// pinnedMinor finds the minor version in a range of versions such as 2.7.x, ~2.7.0 or v2.7.1.
var pinnedMinor = regexp.MustCompile(`^[=~v\s]*(\d+)\.(\d+)(?:\.[\dx*].*)?$`)

// alignDistribution makes a FluxInstance that pins a minor version of Flux select the minor version
// that the local cluster runs, in the served file as well, and reports the difference. flux-operator
// decides about other ranges.
func (c *Cluster) alignDistribution() error {
	version, _, _ := unstructured.NestedString(c.Fleet.Instance.Object, "spec", "distribution", "version")
	match := pinnedMinor.FindStringSubmatch(version)
	runs := config.FluxVersion()
	if match == nil || "v"+match[1]+"."+match[2] == minor(runs) {
		return nil
	}
	selects := strings.TrimPrefix(minor(runs), "v") + ".x"
	if match[1] != "2" {
		return fmt.Errorf("%w: the FluxInstance in %s selects Flux %s, and the local cluster runs %s: set spec.distribution.version to %s in a copy of the fleet",
			errTooOld, c.Fleet.InstanceFile, version, runs, selects)
	}
	content, err := os.ReadFile(filepath.Join(c.Fleet.Dir, filepath.FromSlash(c.Fleet.InstanceFile)))
	if err != nil {
		return fmt.Errorf("cannot read the fleet: %w", err)
	}
	field := regexp.MustCompile(`(\bversion["']?\s*:\s*)["']?` + regexp.QuoteMeta(version) + `["']?(\s|[,}]|$)`)
	c.Fleet.Overlay[c.Fleet.InstanceFile] = field.ReplaceAll(content, []byte(`${1}"`+selects+`"${2}`))
	if err := unstructured.SetNestedField(c.Fleet.Instance.Object, selects, "spec", "distribution", "version"); err != nil {
		return fmt.Errorf("cannot set the version of the FluxInstance in %s: %w", c.Fleet.InstanceFile, err)
	}
	c.opts.Report(fmt.Errorf("the FluxInstance in %s selects Flux %s, and the local cluster runs %s with its own CRDs: versions of kinds, flags and defaults that changed in between count as in %[3]s", c.Fleet.InstanceFile, version, runs))
	return nil
}

// KubernetesMinor is the minor version of Kubernetes that the local cluster runs.
const KubernetesMinor = "1.36"

// OtherKubernetes are further minor versions that it can run, each with a program that is built on
// demand from cluster/kubernetes-VERSION.mod.
var OtherKubernetes = []string{"1.33", "1.34", "1.35"}

// controlPlane is the name of the program with the control plane.
const controlPlane = "tenure-cluster"

// CheckKubernetes returns an error if the local cluster cannot run a version of Kubernetes, such as
// 1.36 or v1.36.1; "" is [KubernetesMinor].
func CheckKubernetes(version string) error {
	_, err := controlPlaneOf(version)
	return err
}

// controlPlaneOf returns the name of the program with the control plane of a version of Kubernetes,
// such as 1.36 or v1.36.1; "" is [KubernetesMinor]. It returns an error if there is no such program
// for the minor version; any patch version counts as the program's.
func controlPlaneOf(version string) (string, error) {
	asked := strings.TrimPrefix(version, "v")
	is := func(minor string) bool { return asked == minor || strings.HasPrefix(asked, minor+".") }
	if asked == "" || is(KubernetesMinor) {
		return controlPlane, nil
	}
	if i := slices.IndexFunc(OtherKubernetes, is); i >= 0 {
		return controlPlane + "-" + OtherKubernetes[i], nil
	}
	return "", fmt.Errorf("cannot run Kubernetes %s: the local cluster's programs are Kubernetes %s, and %s on demand: leave out --kubernetes, and read the versions of the API that %[2]s removed before you compare the result with a cluster of %[1]s",
		version, KubernetesMinor, strings.Join(OtherKubernetes, ", "))
}

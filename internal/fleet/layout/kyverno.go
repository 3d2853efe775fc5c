package layout

import (
	"bytes"
	"cmp"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// KyvernoManifests is the address at which Kyverno's authors publish its manifests.
const KyvernoManifests = "oci://ghcr.io/kyverno/manifests/kyverno"

// Kyverno describes the parts of Kyverno in a fleet.
type Kyverno struct {
	// Policies reports whether a manifest of the fleet is a policy of Kyverno.
	Policies bool
	// Installed reports whether the fleet installs Kyverno: from Artifacts, from a chart, or with
	// manifests of its own.
	Installed bool
	// Artifacts are the references to [KyvernoManifests] in the fleet's OCIRepositories.
	Artifacts []Artifact
	// Charts are the versions of Kyverno's chart that the fleet names exactly, and "" for a range
	// or none.
	Charts []string
	// Namespaces are those that the fleet's HelmReleases install Kyverno in.
	Namespaces []string
}

// KyvernoCharts and KyvernoChart are the addresses at which Kyverno's authors publish its chart: a
// Helm repository, and an OCI artifact.
const (
	KyvernoCharts = "https://kyverno.github.io/kyverno"
	KyvernoChart  = "oci://ghcr.io/kyverno/charts/kyverno"
)

// Artifact is a reference in an OCIRepository.
type Artifact struct {
	// Tag is spec.ref.tag, or "" for another reference.
	Tag string
	// Verified reports whether source-controller is to verify a signature.
	Verified bool
}

// Kyverno returns the parts of Kyverno in the fleet. Like [Fleet.UsesOperator] it reads all
// manifests of the repository, since the infrastructure is rarely in a cluster's folder, and the
// manifests in the folders of other repositories. It skips files that cannot be parsed.
func (f *Fleet) Kyverno(others ...string) Kyverno {
	var use Kyverno
	for _, dir := range append([]string{f.Dir}, others...) {
		use.look(dir)
	}
	return use
}

func (k *Kyverno) look(dir string) {
	_ = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a folder that cannot be read has no Kyverno
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if ext := path.Ext(name); d.IsDir() || ext != ".yaml" && ext != ".yml" {
			return nil
		}
		content, err := fs.ReadFile(os.DirFS(dir), name)
		if err != nil || !bytes.Contains(content, []byte("kyverno")) {
			return nil //nolint:nilerr // as above
		}
		objects, _ := parse(content)
		for _, object := range objects {
			k.add(object)
		}
		return nil
	})
}

func (k *Kyverno) add(object unstructured.Unstructured) {
	group, _, _ := strings.Cut(object.GetAPIVersion(), "/")
	address, _, _ := unstructured.NestedString(object.Object, "spec", "url")
	switch kind := object.GetKind(); {
	case group == "kyverno.io" || group == "policies.kyverno.io":
		k.Policies = true
	case kind == "OCIRepository" && strings.TrimSuffix(address, "/") == KyvernoManifests:
		k.Installed = true
		tag, _, _ := unstructured.NestedString(object.Object, "spec", "ref", "tag")
		_, verified, _ := unstructured.NestedMap(object.Object, "spec", "verify")
		if artifact := (Artifact{Tag: tag, Verified: verified}); !slices.Contains(k.Artifacts, artifact) {
			k.Artifacts = append(k.Artifacts, artifact)
		}
	case kind == "OCIRepository" && strings.TrimSuffix(address, "/") == KyvernoChart:
		tag, _, _ := unstructured.NestedString(object.Object, "spec", "ref", "tag")
		k.addChart(tag)
	case kind == "HelmRelease":
		k.addRelease(object)
	case kind == "Deployment":
		k.Installed = k.Installed || runsKyverno(object)
	}
}

// exactVersion matches a version of a chart, and no range.
var exactVersion = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func (k *Kyverno) addChart(version string) {
	k.Installed = true
	if !exactVersion.MatchString(version) {
		version = ""
	}
	if !slices.Contains(k.Charts, version) {
		k.Charts = append(k.Charts, version)
	}
}

// addRelease adds a HelmRelease of Kyverno: of its chart, or with its name and a reference to a
// chart that another object names.
func (k *Kyverno) addRelease(release unstructured.Unstructured) {
	chart, _, _ := unstructured.NestedString(release.Object, "spec", "chart", "spec", "chart")
	switch {
	case chart == "kyverno":
		version, _, _ := unstructured.NestedString(release.Object, "spec", "chart", "spec", "version")
		k.addChart(version)
	case chart != "" || !strings.Contains(release.GetName(), "kyverno"):
		return
	}
	namespace, _, _ := unstructured.NestedString(release.Object, "spec", "targetNamespace")
	if namespace = cmp.Or(namespace, release.GetNamespace()); namespace != "" && !slices.Contains(k.Namespaces, namespace) {
		k.Namespaces = append(k.Namespaces, namespace)
	}
}

// runsKyverno reports whether a Deployment runs Kyverno's admission controller.
func runsKyverno(deployment unstructured.Unstructured) bool {
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	return slices.ContainsFunc(containers, func(container any) bool {
		fields, _ := container.(map[string]any)
		image, _ := fields["image"].(string)
		image, _, _ = strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
		return image == "kyverno"
	})
}

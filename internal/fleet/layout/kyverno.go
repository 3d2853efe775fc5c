package layout

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// KyvernoManifests is the address at which Kyverno's authors publish its manifests.
const KyvernoManifests = "oci://ghcr.io/kyverno/manifests/kyverno"

// Kyverno describes what a fleet has of Kyverno.
type Kyverno struct {
	// Policies reports whether a manifest of the fleet is a policy of Kyverno.
	Policies bool
	// Installed reports whether the fleet installs Kyverno: from Artifacts, from a chart, or with
	// manifests of its own.
	Installed bool
	// Artifacts are the references to [KyvernoManifests] in the fleet's OCIRepositories.
	Artifacts []Artifact
}

// Artifact is a reference in an OCIRepository.
type Artifact struct {
	// Tag is spec.ref.tag, or "" for another reference.
	Tag string
	// Verified reports whether source-controller is to verify a signature.
	Verified bool
}

// Kyverno returns what the fleet has of Kyverno. Like [Fleet.UsesOperator] it looks at all
// manifests of the repository, since a cluster's folder seldom has its infrastructure. It skips
// files that cannot be parsed.
func (f *Fleet) Kyverno() Kyverno {
	var use Kyverno
	_ = fs.WalkDir(os.DirFS(f.Dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a folder that cannot be read has no Kyverno
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if ext := path.Ext(name); d.IsDir() || ext != ".yaml" && ext != ".yml" {
			return nil
		}
		content, err := fs.ReadFile(os.DirFS(f.Dir), name)
		if err != nil || !bytes.Contains(content, []byte("kyverno")) {
			return nil //nolint:nilerr // as above
		}
		objects, _ := parse(content)
		for _, object := range objects {
			use.add(object)
		}
		return nil
	})
	return use
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
	case kind == "OCIRepository" || kind == "HelmRepository":
		k.Installed = k.Installed || strings.Contains(address, "kyverno.github.io/kyverno") || strings.Contains(address, "ghcr.io/kyverno/charts")
	case kind == "Deployment":
		k.Installed = k.Installed || runsKyverno(object)
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

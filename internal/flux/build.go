package flux

import (
	"fmt"

	"github.com/fluxcd/pkg/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Build builds the kustomization in the folder dir as kustomize-controller would:
// nothing outside root is read, and nothing is fetched from elsewhere.
func Build(root, dir string) ([]*unstructured.Unstructured, error) {
	resources, err := kustomize.SecureBuild(root, dir, false)
	if err != nil {
		return nil, fmt.Errorf("cannot build the kustomization: %w", err)
	}
	manifests, err := resources.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("cannot build the kustomization: %w", err)
	}
	return ReadObjects(manifests)
}

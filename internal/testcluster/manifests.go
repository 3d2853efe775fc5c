package testcluster

import (
	"testing"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// Apply applies the wanted objects of manifests, in the order of the manifests.
func Apply(t testing.TB, admin *rest.Config, wanted func(*unstructured.Unstructured) bool, manifests ...[]byte) {
	t.Helper()
	for _, m := range manifests {
		objects, err := flux.ReadObjects(m)
		if err != nil {
			t.Fatal(err)
		}
		var filtered []*unstructured.Unstructured
		for _, o := range objects {
			if wanted(o) {
				filtered = append(filtered, o)
			}
		}
		if err := flux.ApplyManifests(t.Context(), admin, filtered); err != nil {
			t.Fatal(err)
		}
	}
}

// WithoutControllers is a filter for [Apply]: of Flux's manifests it keeps the CRDs, and of
// other manifests everything but Deployments.
func WithoutControllers(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition" || o.GetLabels()["app.kubernetes.io/part-of"] != "flux" && o.GetKind() != "Deployment"
}

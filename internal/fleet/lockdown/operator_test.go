package lockdown

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A FluxInstance has the flags of Flux, so the profile does not write manifests beside it.
func TestFluxInstance(t *testing.T) {
	t.Parallel()
	f := &layout.Fleet{Dir: t.TempDir(), Instance: &unstructured.Unstructured{}, InstanceFile: "clusters/prod/flux.yaml"}
	_, made := Make(f, Options{Tenants: true})
	_, drifted := Drift(f)
	for _, err := range []error{made, drifted} {
		if err == nil || !strings.Contains(err.Error(), "clusters/prod/flux.yaml installs Flux") {
			t.Errorf("want an error that names the FluxInstance, got %v", err)
		}
	}
}

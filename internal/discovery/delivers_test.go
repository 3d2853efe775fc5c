package discovery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestInventory checks that inventory reads the kinds that Flux stores, also for names with
// colons.
func TestInventory(t *testing.T) {
	t.Parallel()
	u := unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"inventory": map[string]any{"entries": []any{
		map[string]any{"id": "apps_web__Deployment", "v": "v1"},
		map[string]any{"id": "apps_web_apps_Deployment", "v": "v1"},
		map[string]any{"id": "apps_other_apps_Deployment", "v": "v1"},
		map[string]any{"id": "apps_tenure__web_rbac.authorization.k8s.io_Role", "v": "v1"},
		map[string]any{"id": "broken"},
	}}}}}
	want := []schema.GroupVersionKind{
		{Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	}
	if diff := cmp.Diff(want, inventory(u)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestResourceOf checks that resourceOf uses the mapper, and the kind without a mapper.
func TestResourceOf(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Odd"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.AddSpecific(kind, kind.GroupVersion().WithResource("oddities"), kind.GroupVersion().WithResource("odd"), meta.RESTScopeNamespace)
	if got := resourceOf(kind, mapper).Resource; got != "oddities" {
		t.Errorf("the mapper says oddities, got %s", got)
	}
	if got := resourceOf(schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, nil).Resource; got != "networkpolicies" {
		t.Errorf("guessed %s", got)
	}
}

package tenantnamespace

import (
	"errors"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestProfileReader reads a profile that changes, becomes invalid and is replaced.
func TestProfileReader(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	reader := &ProfileReader{Client: c, Home: "flux-system"}
	if got, err := reader.Profile(t.Context()); got != nil || err != nil {
		t.Fatalf("without a profile: %v, %v", got, err)
	}
	u := profileObject()
	u.SetName(v1alpha1.ProfileName)
	write := func(namespaces []any, glass string, do func() error) {
		t.Helper()
		u.Object["spec"] = map[string]any{
			"platformNamespaces": namespaces, "platformAccounts": []any{"flux-system/" + tenancy.ManagerAccount}, "breakGlass": []any{glass},
			"tenants": map[string]any{"bounds": map[string]any{"minInterval": "30s", "maxTimeout": "15m"}},
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	create := func() error { u.SetResourceVersion(""); return c.Create(t.Context(), u) }
	update := func() error { return c.Update(t.Context(), u) }
	reads := func(reason, want string) {
		t.Helper()
		for range 3 {
			got, err := reader.Profile(t.Context())
			if err != nil || got == nil || got.Spec.BreakGlass[0] != want {
				t.Fatalf("%s: got %+v, %v", reason, got, err)
			}
			got.Spec.BreakGlass[0] = "changed by the caller"
		}
	}
	own := []any{"flux-system"}
	write(own, "first", create)
	reads("a profile", "first")
	write(own, "second", update)
	reads("a changed profile", "second")
	write([]any{"other"}, "third", update)
	for range 2 {
		if got, err := reader.Profile(t.Context()); !errors.Is(err, tenancy.ErrInvalid) {
			t.Fatalf("an invalid profile: %+v, %v", got, err)
		}
	}
	remove := func() {
		t.Helper()
		if err := c.Delete(t.Context(), u.DeepCopyObject().(*unstructured.Unstructured)); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	if got, err := reader.Profile(t.Context()); got != nil || err != nil {
		t.Fatalf("a deleted profile: %v, %v", got, err)
	}
	u.SetUID("another")
	write(own, "fourth", create)
	reads("another profile", "fourth")
	remove()
	u.SetUID("restored")
	write(own, "fifth", create)
	reads("a profile of another cluster state, with the same version", "fifth")
}

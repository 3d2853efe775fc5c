package flux

import (
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestAddresses checks that failed sources are named as --map takes them.
func TestAddresses(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(
		&sourcev1.GitRepository{ObjectMeta: at("a", "team", 1), Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/team", Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}},
		&sourcev1.OCIRepository{ObjectMeta: at("a", "chart", 1), Spec: sourcev1.OCIRepositorySpec{URL: "oci://ghcr.io/acme/chart", Reference: &sourcev1.OCIRepositoryRef{Tag: "1.0.0"}}},
		&sourcev1.GitRepository{ObjectMeta: at("a", "named", 1), Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/named", Reference: &sourcev1.GitRepositoryRef{Name: "refs/heads/next", Branch: "main"}}},
		&sourcev1.GitRepository{ObjectMeta: at("a", "bare", 1), Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/bare"}},
		&sourcev1.HelmRepository{ObjectMeta: at("a", "charts", 1), Spec: sourcev1.HelmRepositorySpec{URL: "https://charts.example.com"}},
	).Build()
	failed := func(kind Kind, name, reason string) Finding {
		return Finding{Row: Row{Kind: kind, Namespace: "a", Name: name, State: Failed}, Reason: reason}
	}
	got := Addresses(t.Context(), c, []Finding{
		failed(OCIRepository, "chart", "ghcr.io is not mapped"), failed(GitRepository, "team", "git.example.com is not mapped"),
		failed(GitRepository, "named", "git.example.com is not mapped"), failed(GitRepository, "bare", "git.example.com is not mapped"),
		failed(HelmRepository, "charts", "denied"), failed(GitRepository, "gone", "git.example.com is not mapped"),
	}, "is not mapped")
	want := []string{"https://git.example.com/bare#master", "https://git.example.com/named#next", "https://git.example.com/team#main", "oci://ghcr.io/acme/chart:1.0.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

package flux

import (
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestAddresses checks that failed sources are named as --map takes them.
func TestAddresses(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(
		&sourcev1.GitRepository{ObjectMeta: at("a", "team", 1), Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/team", Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}},
		&sourcev1.OCIRepository{ObjectMeta: at("a", "chart", 1), Spec: sourcev1.OCIRepositorySpec{URL: "oci://ghcr.io/acme/chart", Reference: &sourcev1.OCIRepositoryRef{Tag: "1.0.0"}}},
		&sourcev1.OCIRepository{ObjectMeta: at("a", "range", 1), Spec: sourcev1.OCIRepositorySpec{URL: "oci://ghcr.io/acme/range", Reference: &sourcev1.OCIRepositoryRef{SemVer: "1.x"}}},
		&sourcev1.GitRepository{ObjectMeta: at("a", "named", 1), Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/named", Reference: &sourcev1.GitRepositoryRef{Name: "refs/heads/next", Branch: "main"}}},
		&sourcev1.GitRepository{ObjectMeta: at("a", "tagged", 1), Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/tagged", Reference: &sourcev1.GitRepositoryRef{Tag: "v5.7.0"}}},
		&sourcev1.GitRepository{ObjectMeta: at("a", "bare", 1), Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/bare"}},
		&sourcev1.HelmRepository{ObjectMeta: at("a", "charts", 1), Spec: sourcev1.HelmRepositorySpec{URL: "https://charts.example.com"}},
		&sourcev1.HelmRepository{ObjectMeta: at("a", "registry", 1), Spec: sourcev1.HelmRepositorySpec{Type: "oci", URL: "oci://quay.io/jetstack/charts"}},
		&sourcev1.HelmChart{ObjectMeta: at("a", "a-certs", 1), Spec: sourcev1.HelmChartSpec{Chart: "cert-manager", Version: "1.21.1", SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: "HelmRepository", Name: "registry"}}},
		&sourcev1.HelmChart{ObjectMeta: at("a", "a-web", 1), Spec: sourcev1.HelmChartSpec{Chart: "web", SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: "HelmRepository", Name: "charts"}}},
	).Build()
	failed := func(kind Kind, name, reason string) Finding {
		return Finding{Row: Row{Kind: kind, Namespace: "a", Name: name, State: Failed}, Reason: reason}
	}
	got := Addresses(t.Context(), c, []Finding{
		failed(OCIRepository, "chart", "ghcr.io is not mapped"), failed(OCIRepository, "range", "ghcr.io is not mapped"), failed(GitRepository, "team", "git.example.com is not mapped"),
		failed(GitRepository, "named", "git.example.com is not mapped"), failed(GitRepository, "bare", "git.example.com is not mapped"),
		failed(GitRepository, "tagged", "git.example.com is not mapped"),
		failed(HelmChart, "a-certs", "quay.io is not mapped"), failed(HelmChart, "a-web", "charts.example.com is not mapped"),
		failed(HelmRepository, "charts", "denied"), failed(GitRepository, "gone", "git.example.com is not mapped"),
	}, "is not mapped")
	want := []string{"https://git.example.com/bare#master", "https://git.example.com/named#next", "https://git.example.com/tagged", "https://git.example.com/team#main", "oci://ghcr.io/acme/chart:1.0.0", "oci://ghcr.io/acme/range", "oci://quay.io/jetstack/charts/cert-manager"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestFollowedBranch checks which branch a GitRepository follows, for a fleet that selects another thing too.
func TestFollowedBranch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ref  map[string]any
		want string
	}{
		"no ref":         {want: "master"},
		"a branch":       {ref: map[string]any{"branch": "main"}, want: "main"},
		"a full name":    {ref: map[string]any{"name": "refs/heads/next"}, want: "next"},
		"a range":        {ref: map[string]any{"semver": ">=1.0.0"}},
		"a name of else": {ref: map[string]any{"name": "refs/tags/v1"}},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
		if tc.ref != nil {
			u.Object["spec"] = map[string]any{"ref": tc.ref}
		}
		if got := FollowedBranch(u); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// TestTag checks which tag an OCIRepository selects: Flux's order is digest, range of versions, tag.
func TestTag(t *testing.T) {
	t.Parallel()
	found := map[string]any{"artifact": map[string]any{"revision": "1.2.3@sha256:0"}}
	for name, tc := range map[string]struct {
		ref, status map[string]any
		want        string
	}{
		"no ref":          {want: "latest"},
		"a tag":           {ref: map[string]any{"tag": "v1"}, want: "v1"},
		"a found version": {ref: map[string]any{"semver": "1.x", "tag": "v1"}, status: found, want: "1.2.3"},
		"no version":      {ref: map[string]any{"semver": "1.x", "tag": "v1"}},
		"a digest":        {ref: map[string]any{"digest": "sha256:0", "tag": "v1", "semver": "1.x"}, status: found},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
		if tc.ref != nil {
			u.Object["spec"] = map[string]any{"ref": tc.ref}
		}
		u.Object["status"] = tc.status
		if got := Tag(u); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

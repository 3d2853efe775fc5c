package flux

import (
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestSourcesOf(t *testing.T) {
	t.Parallel()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	chart := func(name, chart, kind, source string) *sourcev1.HelmChart {
		return &sourcev1.HelmChart{ObjectMeta: meta(name), Spec: sourcev1.HelmChartSpec{
			Chart: chart, SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: kind, Name: source},
		}}
	}
	kube := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects([]client.Object{
		&sourcev1.GitRepository{ObjectMeta: meta("git"), Spec: sourcev1.GitRepositorySpec{URL: "ssh://git@git.example.com/acme/app.git"}},
		&sourcev1.OCIRepository{ObjectMeta: meta("oci"), Spec: sourcev1.OCIRepositorySpec{URL: "oci://oci.example.com/charts/app"}},
		&sourcev1.HelmRepository{ObjectMeta: meta("helm"), Spec: sourcev1.HelmRepositorySpec{URL: "https://charts.example.com/"}},
		&sourcev1.HelmRepository{ObjectMeta: meta("registry"), Spec: sourcev1.HelmRepositorySpec{URL: "oci://oci.example.com/charts/", Type: sourcev1.HelmRepositoryTypeOCI}},
		chart("from-registry", "app", sourcev1.HelmRepositoryKind, "registry"),
		chart("other-chart", "other", sourcev1.HelmRepositoryKind, "registry"),
		chart("other-kind", "app", sourcev1.GitRepositoryKind, "registry"),
		chart("from-helm", "app", sourcev1.HelmRepositoryKind, "helm"),
	}...).Build()
	for _, tc := range []struct {
		reason, address string
		want            []Ref
	}{
		{"a Git repository, over another scheme", "https://git.example.com/acme/app", []Ref{{GitRepository, "ns", "git"}}},
		{"an artifact, and the chart that it is", "oci://oci.example.com/charts/app", []Ref{{OCIRepository, "ns", "oci"}, {HelmChart, "ns", "from-registry"}}},
		{"charts of an ordinary repository follow it", "https://charts.example.com", []Ref{{HelmRepository, "ns", "helm"}}},
		{"a registry itself holds nothing", "oci://oci.example.com/charts", nil},
		{"nobody's address", "https://git.example.com/acme", nil},
	} {
		got, err := SourcesOf(t.Context(), kube, tc.address)
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

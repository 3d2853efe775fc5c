package catalog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLacks(t *testing.T) {
	t.Parallel()
	namespaces := []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "apps", Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "others", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}}},
	}
	kustomization := func(name, reason string) unreadyObject {
		return unreadyObject{flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: name}, reason}
	}
	right := discovery.Right{Role: "ClusterRole/team", Namespace: "apps", Binding: "RoleBinding apps/team", Subject: "ServiceAccount apps/team", AppliedBy: "flux-system/rights"}
	const half = "the tenant may lack rights that the fleet gives it, since Kustomization/flux-system/"
	for name, tc := range map[string]struct {
		reason  string
		rights  []discovery.Right
		missing []unreadyObject
		want    string
	}{
		"ready":     {"everything is ready", nil, nil, ""},
		"namespace": {"what applies its namespace is not ready", []discovery.Right{right}, []unreadyObject{kustomization("tenants", "is not ready")}, half + "tenants, which applies its objects, is not ready"},
		"binding":   {"nor what applies its binding", []discovery.Right{right}, []unreadyObject{kustomization("rights", "is assumed")}, half + "rights, which applies its objects, is assumed"},
		"other":     {"another one is nothing to it", []discovery.Right{right}, []unreadyObject{kustomization("others", "is not ready")}, ""},
		"kind":      {"a release of the name of its Kustomization is another object", []discovery.Right{right}, []unreadyObject{{flux.Ref{Kind: flux.HelmRelease, Namespace: "flux-system", Name: "tenants"}, "is not ready"}}, ""},
		"powerless": {"without rights each may be the one that gives them", nil, []unreadyObject{kustomization("others", "is not ready")}, "the tenant has no rights here, and Kustomization/flux-system/others, which may give them, is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := lacks(discovery.Tenant{Name: "team", Namespaces: []string{"apps"}, Rights: tc.rights}, namespaces, tc.missing)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOfTenant(t *testing.T) {
	t.Parallel()
	delegated := flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "team"}
	all := []discovery.Tenant{{Namespaces: []string{"apps"}, Repositories: []discovery.Repository{{Kustomization: delegated}}}}
	for _, tc := range []struct {
		reason string
		ref    flux.Ref
		want   bool
	}{
		{"in its namespace", flux.Ref{Kind: flux.HelmRelease, Namespace: "apps", Name: "web"}, true},
		{"delegated by the platform", delegated, true},
		{"the platform's own", flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "tenants"}, false},
		{"a release of the name of a Kustomization", flux.Ref{Kind: flux.HelmRelease, Namespace: "flux-system", Name: "team"}, false},
	} {
		if got := ofTenant(tc.ref, all); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
}

package lockdown

import (
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// delegatedSyncs returns the fleet's Kustomizations and HelmReleases in Flux's namespace
// that apply with an account of their own, if that account has rights in the namespaces
// of exactly one tenant and nowhere else.
func (s *survey) delegatedSyncs(namespace string) []v1alpha1.DelegatedSync {
	var found []v1alpha1.DelegatedSync
	for _, o := range s.objects {
		account := o.text("spec", "serviceAccountName")
		if o.GetNamespace() != namespace || !o.isFlux("Kustomization") && !o.isFlux("HelmRelease") || account == "" || strings.HasSuffix(account, "-controller") {
			continue
		}
		if tenants := s.tenantsOf(namespace, account); len(tenants) == 1 && tenants[0] != "" {
			found = append(found, v1alpha1.DelegatedSync{Tenant: tenants[0], Namespace: namespace, Name: o.GetName()})
		}
	}
	slices.SortFunc(found, func(a, b v1alpha1.DelegatedSync) int {
		return strings.Compare(a.Tenant+"/"+a.Name, b.Tenant+"/"+b.Name)
	})
	return slices.Compact(found)
}

// tenantsOf returns the tenants in whose namespaces an account has rights; "" stands for
// the whole cluster and for namespaces that belong to no tenant.
func (s *survey) tenantsOf(namespace, account string) []string {
	var tenants []string
	for _, o := range s.objects {
		if o.GetKind() != "RoleBinding" && o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		if slices.ContainsFunc(subjects, func(item any) bool {
			subject, _ := item.(map[string]any)
			return subject["kind"] == rbacv1.ServiceAccountKind && subject["name"] == account && subject["namespace"] == namespace
		}) {
			tenants = append(tenants, s.tenants[o.GetNamespace()])
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

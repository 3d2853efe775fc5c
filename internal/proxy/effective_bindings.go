package proxy

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// fluxNamespaceLabels are the labels in which Flux stores the namespace of the
// Kustomization or HelmRelease that applied an object.
var fluxNamespaceLabels = []string{"kustomize.toolkit.fluxcd.io/namespace", "helm.toolkit.fluxcd.io/namespace", "resourceset.fluxcd.controlplane.io/namespace"}

// platformLabels mark a RoleBinding as the platform's: the rule "managed" of
// internal/admission lets only the platform write these labels in a tenant's namespace.
var platformLabels = append([]string{tenancy.LabelManaged}, fluxNamespaceLabels...)

// effectiveBindings evaluates the rights of a caller that decide what the proxy shows the
// caller. A tenant may be able to create RoleBindings in its namespaces for any subject. A
// binding for a group of all users would add the tenant's objects to the lists of all
// users, and would end their watches with each change of the binding. So the proxy counts a
// binding in a tenant's namespace only if the caller belongs to the tenant, if the platform
// made the binding, or if the binding names the caller as a user. A right that the proxy
// does not count is still a right at the API server.
type effectiveBindings struct {
	*authorizationCache
	self string   // the key of the caller's name
	mine []string // the tenants that the caller belongs to
}

// effectiveBindingsOf returns the rights of a user that the proxy counts.
func (v *authorizationCache) effectiveBindingsOf(who user.Info) effectiveBindings {
	return effectiveBindings{authorizationCache: v, self: userKey(who.GetName()), mine: v.tenantsOf(who)}
}

// tenantsOf returns the tenants of a user: the tenants that the user owns and, for a service
// account, the tenant of its namespace.
func (v *authorizationCache) tenantsOf(who user.Info) []string {
	mine := v.owned(who)
	if namespace, _, err := serviceaccount.SplitUsername(who.GetName()); err == nil {
		if home, _ := v.tenantNamed(namespace); home != "" {
			mine = append(mine, home)
		}
	}
	return mine
}

// tenantNamed returns the name of a namespace's tenant, by any of the tenant labels, or ""
// if the namespace has no tenant. It returns false for an unknown namespace.
func (v *authorizationCache) tenantNamed(namespace string) (string, bool) {
	ns, ok := v.namespace(namespace)
	if !ok {
		return "", false
	}
	for _, label := range tenantLabels {
		if ns.Labels[label] != "" {
			return ns.Labels[label], true
		}
	}
	return "", true
}

// bindings implements [grants].
func (c effectiveBindings) bindings(key, namespace string) []*rbacv1.RoleBinding {
	all := c.authorizationCache.bindings(key, namespace)
	if key == c.self {
		return all
	}
	return slices.DeleteFunc(all, func(b *rbacv1.RoleBinding) bool {
		tenant, byTenant := c.writer(b)
		return byTenant && !slices.Contains(c.mine, tenant)
	})
}

// writer returns the tenant that may have written a binding, and whether there is one. The
// name is "" if the proxy does not know the binding's namespace yet.
func (v *authorizationCache) writer(b *rbacv1.RoleBinding) (tenant string, byTenant bool) {
	tenant, known := v.tenantNamed(b.Namespace)
	return tenant, (tenant != "" || !known) && !v.ofPlatform(b.Labels)
}

// ofPlatform reports whether a RoleBinding with these labels is the platform's.
func (v *authorizationCache) ofPlatform(set map[string]string) bool {
	if set[tenancy.LabelManaged] == tenancy.ManagedValue {
		return true
	}
	profile, ok := get[*v1alpha1.TenancyProfile](v.profiles, v1alpha1.ProfileName)
	return ok && slices.ContainsFunc(fluxNamespaceLabels, func(label string) bool {
		return slices.Contains(profile.Spec.PlatformNamespaces, set[label])
	})
}

// onlyLabels copies the labels in kept to the metadata of an object.
func onlyLabels(meta *metav1.ObjectMeta, from map[string]string, kept []string) {
	for _, label := range kept {
		if value, ok := from[label]; ok {
			metav1.SetMetaDataLabel(meta, label, value)
		}
	}
}

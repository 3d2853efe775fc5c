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

// fluxNamespaceLabels are the labels by which Flux says which Kustomization or
// HelmRelease applied an object.
var fluxNamespaceLabels = []string{"kustomize.toolkit.fluxcd.io/namespace", "helm.toolkit.fluxcd.io/namespace"}

// platformLabels make a RoleBinding the platform's: the rule "managed" of
// internal/admission lets nobody else write them in a tenant's namespace.
var platformLabels = append([]string{tenancy.LabelManaged}, fluxNamespaceLabels...)

// counted are the rights of one caller that count for what the caller is shown. A
// tenant may be able to write RoleBindings in its namespaces, for whomever it wants: one
// for a group of everybody would bring what the tenant has into everybody's lists, and
// would end their watches whenever it comes and goes. So a binding in a tenant's
// namespace counts for those who belong to the tenant, if it is the platform's, or if it
// names the caller and no group. A right that is not counted is still a right at the API
// server.
type counted struct {
	*view
	self string   // the key of the caller's name
	mine []string // the tenants that the caller belongs to
}

// countedFor are the rights of somebody that count.
func (v *view) countedFor(who user.Info) counted {
	return counted{view: v, self: userKey(who.GetName()), mine: v.tenantsOf(who)}
}

// tenantsOf are the tenants that somebody belongs to: those that they own, and of a
// service account the one in whose namespace it is.
func (v *view) tenantsOf(who user.Info) []string {
	mine := v.owned(who)
	if namespace, _, err := serviceaccount.SplitUsername(who.GetName()); err == nil {
		if home, _ := v.tenantNamed(namespace); home != "" {
			mine = append(mine, home)
		}
	}
	return mine
}

// tenantNamed is the name of the tenant whose a namespace is, whatever says so; "" is
// nobody's. It returns false for a namespace that is not known.
func (v *view) tenantNamed(namespace string) (string, bool) {
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
func (c counted) bindings(key, namespace string) []*rbacv1.RoleBinding {
	all := c.view.bindings(key, namespace)
	if key == c.self {
		return all
	}
	return slices.DeleteFunc(all, func(b *rbacv1.RoleBinding) bool {
		tenant, byTenant := c.writer(b)
		return byTenant && !slices.Contains(c.mine, tenant)
	})
}

// writer says whether a tenant may have written a binding, and which: "" is one that is
// not known, since the binding was heard of before its namespace.
func (v *view) writer(b *rbacv1.RoleBinding) (tenant string, byTenant bool) {
	tenant, known := v.tenantNamed(b.Namespace)
	return tenant, (tenant != "" || !known) && !v.ofPlatform(b.Labels)
}

// ofPlatform says whether a RoleBinding with these labels is the platform's.
func (v *view) ofPlatform(set map[string]string) bool {
	if set[tenancy.LabelManaged] == tenancy.ManagedValue {
		return true
	}
	profile, ok := get[*v1alpha1.TenancyProfile](v.profiles, v1alpha1.ProfileName)
	return ok && slices.ContainsFunc(fluxNamespaceLabels, func(label string) bool {
		return slices.Contains(profile.Spec.PlatformNamespaces, set[label])
	})
}

// onlyLabels leaves of labels those that are kept.
func onlyLabels(meta *metav1.ObjectMeta, from map[string]string, kept []string) {
	for _, label := range kept {
		if value, ok := from[label]; ok {
			metav1.SetMetaDataLabel(meta, label, value)
		}
	}
}

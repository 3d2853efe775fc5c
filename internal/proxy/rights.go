package proxy

import (
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// attributes are a verb and a resource for which RBAC is evaluated.
type attributes struct {
	verb, group, resource, subresource, name string
}

// grants returns the RBAC objects of subjects, by the keys of [keysOf].
type grants interface {
	// clusterBindings returns the ClusterRoleBindings of a subject. bindings returns its
	// RoleBindings in one namespace, or in all namespaces for "".
	clusterBindings(key string) []*rbacv1.ClusterRoleBinding
	bindings(key, namespace string) []*rbacv1.RoleBinding
	// rules returns the rules of a role, and none if the role does not exist.
	rules(namespace string, ref rbacv1.RoleRef) []rbacv1.PolicyRule
}

// keysOf returns the keys of a user's bindings: one for the name and one for each group.
func keysOf(who user.Info) []string {
	keys := []string{userKey(who.GetName())}
	for _, g := range who.GetGroups() {
		if key := groupKey(g); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// userKey and groupKey return the key of a user or a group. A user and a group of the same
// name are two subjects, so the key contains the kind.
func userKey(name string) string  { return "user " + name }
func groupKey(name string) string { return "group " + name }

// memberKey returns the key of all members of a tenant. No subject has this name.
func memberKey(tenant string) string { return "member " + tenant }

func isUserKey(key string) bool { return strings.HasPrefix(key, userKey("")) }

// subjectKeys returns the keys of a binding's subjects. The key of a service account is the
// key of its user name.
func subjectKeys(subjects []rbacv1.Subject, namespace string) []string {
	var keys []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			keys = append(keys, userKey(s.Name))
		case rbacv1.GroupKind:
			keys = append(keys, groupKey(s.Name))
		case rbacv1.ServiceAccountKind:
			if s.Namespace == "" {
				s.Namespace = namespace
			}
			if s.Namespace != "" {
				keys = append(keys, userKey(serviceaccount.MakeUsername(s.Namespace, s.Name)))
			}
		}
	}
	return keys
}

// everywhere reports whether a user has a right in the whole cluster, by RBAC or as a member
// of system:masters.
func everywhere(g grants, who user.Info, a attributes) bool {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return true
	}
	for _, key := range keysOf(who) {
		for _, b := range g.clusterBindings(key) {
			if a.allowedBy(g.rules("", b.RoleRef)) {
				return true
			}
		}
	}
	return false
}

// within reports whether a user has a right in a namespace, by a right in the namespace or in
// the whole cluster. It returns the result of the API server's RBAC: see
// k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac.
func within(g grants, who user.Info, a attributes, namespace string) bool {
	if everywhere(g, who, a) {
		return true
	}
	for _, key := range keysOf(who) {
		for _, b := range g.bindings(key, namespace) {
			if a.allowedBy(g.rules(namespace, b.RoleRef)) {
				return true
			}
		}
	}
	return false
}

// allowedBy reports whether one of the rules allows the attributes.
func (a attributes) allowedBy(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return has(r.Verbs, a.verb) && has(r.APIGroups, a.group) && a.isResource(r.Resources) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.name))
	})
}

// has reports whether a list of a rule contains a value or "*".
func has(list []string, value string) bool {
	return slices.Contains(list, rbacv1.VerbAll) || slices.Contains(list, value)
}

func (a attributes) isResource(list []string) bool {
	whole := a.resource
	if a.subresource != "" {
		whole += "/" + a.subresource
	}
	return has(list, whole) || (a.subresource != "" && slices.Contains(list, "*/"+a.subresource))
}

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

// visible returns the sorted namespaces in which a user has a right.
func (v *authorizationCache) visible(who user.Info, a attributes) []string {
	if everywhere(v, who, a) {
		return slices.Sorted(slices.Values(v.namespaces.GetIndexer().ListKeys()))
	}
	names := v.granted(who, a)
	maps.DeleteFunc(names, func(name string, _ bool) bool {
		_, exists := v.namespace(name)
		return !exists
	})
	return slices.Sorted(maps.Keys(names))
}

// granted returns the namespaces in which effective bindings give a right to a user without
// a cluster-wide right. The namespaces may not exist.
func (v *authorizationCache) granted(who user.Info, a attributes) map[string]bool {
	ofNamespace := a.group == "" && a.resource == "namespaces"
	names, evaluated := map[string]bool{}, map[string]bool{"": true}
	rights := v.effectiveBindingsOf(who)
	add := func(namespace string) {
		// A tenant can create any number of bindings in a namespace that name the user.
		if evaluated[namespace] {
			return
		}
		evaluated[namespace] = true
		if ofNamespace {
			// The API server authorizes a request for a namespace in the namespace itself.
			a.name = namespace
		}
		if within(rights, who, a, namespace) {
			names[namespace] = true
		}
	}
	for _, key := range keysOf(who) {
		for _, b := range rights.bindings(key, "") {
			add(b.Namespace)
		}
		if !ofNamespace {
			continue
		}
		for _, b := range v.clusterBindings(key) {
			for _, r := range v.rules("", b.RoleRef) {
				for _, name := range r.ResourceNames {
					add(name)
				}
			}
		}
	}
	return names
}

// owned returns the sorted names of the Tenants that a user owns.
func (v *authorizationCache) owned(who user.Info) []string {
	names := map[string]bool{}
	for _, key := range keysOf(who) {
		for _, t := range indexed[*v1alpha1.Tenant](v.tenants, bySubject, key) {
			names[t.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

package proxy

import (
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/capsule"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// neverShared are kinds that a Tenant cannot share, because the proxy reads them for itself
// or has another rule for them. indexShared also excludes the API group of RBAC.
var neverShared = map[schema.GroupResource]bool{
	{Resource: "namespaces"}:                                             true,
	{Group: v1alpha1.GroupVersion.Group, Resource: "tenants"}:            true,
	{Group: v1beta1.GroupVersion.Group, Resource: "globalproxysettings"}: true,
}

// volumes is the kind PersistentVolume. A Tenant shares the volumes that are bound to its
// claims.
var volumes = corev1.Resource("persistentvolumes")

// indexShared returns the kinds that an object shares.
func indexShared(o any) ([]string, error) {
	var keys []string
	for _, r := range resourcesOf(o) {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				kind := schema.GroupResource{Group: group, Resource: resource}
				if group != rbacv1.GroupName && !neverShared[kind] {
					keys = append(keys, kind.String())
				}
			}
		}
	}
	return keys, nil
}

// resourcesOf returns the cluster resources that an object shares. The resources of a
// Capsule Tenant are in the Tenant that Tenure generates from it.
func resourcesOf(o any) []v1alpha1.ClusterResource {
	switch o := o.(type) {
	case *v1alpha1.Tenant:
		return o.Spec.ClusterResources
	case *v1beta1.GlobalProxySettings:
		return capsule.GlobalProxySettings(o.Spec).Resources
	case *v1beta1.ProxySetting:
		return capsule.ProxySetting(o.Spec).Resources
	}
	return nil
}

// share holds the objects of a kind that a user may read.
type share struct {
	// platform holds the selectors that the platform sets, and tenants the selectors that
	// tenants set for users of their choice.
	platform, tenants []labels.Selector
}

// shares returns the objects of a kind on which a user may use a verb, in a stable order.
func (v *authorizationCache) shares(who user.Info, kind schema.GroupResource, verb string) share {
	var s share
	defer func() {
		for _, selectors := range [][]labels.Selector{s.platform, s.tenants} {
			slices.SortFunc(selectors, func(a, b labels.Selector) int { return strings.Compare(a.String(), b.String()) })
		}
	}()
	keys := keysOf(who)
	wanted := func(r *v1alpha1.ClusterResource) bool {
		return slices.Contains(r.APIGroups, kind.Group) && slices.Contains(r.Resources, kind.Resource) && slices.Contains(r.Verbs, verb)
	}
	for _, t := range indexed[*v1alpha1.Tenant](v.tenants, byKind, kind.String()) {
		for i := range t.Spec.ClusterResources {
			if r := &t.Spec.ClusterResources[i]; wanted(r) && v.concerns(t, r, who.GetName(), keys) {
				s.platform = append(s.platform, v.selectorOf(t.Name, kind, r))
			}
		}
	}
	if v.globals == nil {
		return s
	}
	for _, g := range indexed[*v1beta1.GlobalProxySettings](v.globals, byKind, kind.String()) {
		for _, r := range resourcesOf(g) {
			if wanted(&r) && meets(sharers(r.Subjects), keys) {
				s.platform = append(s.platform, v.selectorOf("", kind, &r))
			}
		}
	}
	for _, p := range indexed[*v1beta1.ProxySetting](v.settings, byKind, kind.String()) {
		t, ok := v.tenantOf(p.Namespace)
		if !ok {
			continue
		}
		for _, r := range resourcesOf(p) {
			if !wanted(&r) || !meets(v.subjectsOfTenant(t.Name, r.Subjects), keys) {
				continue
			}
			given := v.selectorOf("", kind, &r)
			for _, bound := range v.ofAllOwners(t, kind, wanted) {
				s.tenants = append(s.tenants, intersection(bound, given))
			}
		}
	}
	return s
}

// ofAllOwners returns the selectors of the objects that every owner of a tenant may read. A
// tenant cannot share other objects.
func (v *authorizationCache) ofAllOwners(t *v1alpha1.Tenant, kind schema.GroupResource, wanted func(*v1alpha1.ClusterResource) bool) []labels.Selector {
	owners, _ := indexOwners(t)
	all := func(subjects []v1alpha1.Subject) bool {
		named := sharers(subjects)
		return len(owners) > 0 && !slices.ContainsFunc(owners, func(o string) bool { return !slices.Contains(named, o) })
	}
	var bounds []labels.Selector
	for i := range t.Spec.ClusterResources {
		if r := &t.Spec.ClusterResources[i]; wanted(r) && (len(r.Subjects) == 0 || all(r.Subjects)) {
			bounds = append(bounds, v.selectorOf(t.Name, kind, r))
		}
	}
	for _, g := range indexed[*v1beta1.GlobalProxySettings](v.globals, byKind, kind.String()) {
		for _, r := range resourcesOf(g) {
			if wanted(&r) && all(r.Subjects) {
				bounds = append(bounds, v.selectorOf("", kind, &r))
			}
		}
	}
	return bounds
}

// concerns reports whether a Tenant shares a resource with one of the subjects.
func (v *authorizationCache) concerns(t *v1alpha1.Tenant, r *v1alpha1.ClusterResource, name string, keys []string) bool {
	if len(r.Subjects) > 0 {
		return meets(sharers(r.Subjects), keys)
	}
	owners, _ := indexOwners(t)
	if meets(owners, keys) {
		return true
	}
	namespace, account, err := serviceaccount.SplitUsername(name)
	return err == nil && account == t.Name && v.inTenant(namespace, t.Name)
}

// inTenant reports whether a namespace belongs to a Tenant.
func (v *authorizationCache) inTenant(namespace, tenant string) bool {
	ns, ok := v.namespace(namespace)
	return ok && ns.Labels[v1alpha1.LabelTenant] == tenant
}

// tenantOf returns the Tenant of a namespace.
func (v *authorizationCache) tenantOf(namespace string) (*v1alpha1.Tenant, bool) {
	ns, ok := v.namespace(namespace)
	if !ok || ns.Labels[v1alpha1.LabelTenant] == "" {
		return nil, false
	}
	return get[*v1alpha1.Tenant](v.tenants, ns.Labels[v1alpha1.LabelTenant])
}

// subjectsOfTenant returns the keys of the subjects that a tenant may name: all users and
// groups, and the service accounts of its own namespaces. Users and groups belong to no
// tenant, and get only the objects that the tenant's owners may read.
func (v *authorizationCache) subjectsOfTenant(tenant string, subjects []v1alpha1.Subject) []string {
	return sharers(slices.DeleteFunc(slices.Clone(subjects), func(s v1alpha1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && !v.inTenant(s.Namespace, tenant)
	}))
}

// sharers returns the keys of subjects.
func sharers(subjects []v1alpha1.Subject) []string {
	var all []rbacv1.Subject
	for _, s := range subjects {
		all = append(all, rbacv1.Subject{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name})
	}
	return subjectKeys(all, "")
}

func meets(a, b []string) bool {
	return slices.ContainsFunc(a, func(key string) bool { return slices.Contains(b, key) })
}

// selectorOf returns the selector of the shared objects. An invalid selector selects no
// objects. A Tenant shares only volumes that are bound to its own claims.
func (v *authorizationCache) selectorOf(tenant string, kind schema.GroupResource, r *v1alpha1.ClusterResource) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(&r.Selector)
	if err != nil {
		return emptySelector
	}
	if kind == volumes && tenant != "" {
		var names []string
		for _, ns := range indexed[*corev1.Namespace](v.namespaces, byTenant, tenant) {
			names = append(names, ns.Name)
		}
		slices.Sort(names)
		return intersection(selector, oneOf(v1alpha1.LabelClaimNamespace, names))
	}
	return selector
}

// sharedKinds returns the kinds of which a user may read shared objects, with the verbs.
func (v *authorizationCache) sharedKinds(who user.Info) map[schema.GroupResource][]string {
	kinds := map[schema.GroupResource][]string{}
	for _, informer := range v.sharing() {
		for _, key := range informer.GetIndexer().ListIndexFuncValues(byKind) {
			kinds[schema.ParseGroupResource(key)] = nil
		}
	}
	for kind := range kinds {
		for _, verb := range []string{"get", "list", "watch"} {
			if !v.shares(who, kind, verb).empty() {
				kinds[kind] = append(kinds[kind], verb)
			}
		}
	}
	maps.DeleteFunc(kinds, func(_ schema.GroupResource, verbs []string) bool { return len(verbs) == 0 })
	return kinds
}

func (s share) empty() bool { return len(s.platform)+len(s.tenants) == 0 }

// matches reports whether an object with these labels is shared.
func (s share) matches(set map[string]string) bool {
	return slices.ContainsFunc(append(slices.Clone(s.platform), s.tenants...), func(selector labels.Selector) bool {
		return selector.Matches(labels.Set(set))
	})
}

// sharedRule is the Rule of a kind that is shared with users.
type sharedRule struct {
	view *authorizationCache
	kind schema.GroupResource
	verb string
}

// Resource implements Rule.
func (s sharedRule) Resource() schema.GroupResource { return s.kind }

// Select implements Rule. The platform's shares must fit into one selector. Select drops
// tenants' shares that do not fit: a tenant can name any user, and that user's lists must not
// fail.
func (s sharedRule) Select(who user.Info) Selection {
	given := s.view.shares(who, s.kind, s.verb)
	all, ok := union(given.platform)
	if !ok {
		return Selection{Labels: emptySelector, Refusal: "several label selectors share " + s.kind.String() + " with you, and one list cannot use them all: get single objects by name, or ask the platform to share them by the values of one label"}
	}
	for _, selector := range given.tenants {
		if more, ok := union([]labels.Selector{all, selector}); ok {
			all = more
		}
	}
	return Selection{Labels: all}
}

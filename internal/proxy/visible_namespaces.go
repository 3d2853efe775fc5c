package proxy

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
)

// visibleNamespaces is the set of namespaces that a user may see: the namespaces of the
// Tenants that the user owns, and the namespaces of other tenants that RBAC lets the user
// get. No single selector describes this set, but the name and the labels of a namespace
// decide whether it belongs to the set. So the decision about one version of a namespace
// needs no other object.
type visibleNamespaces struct {
	// owned are names of Tenants, sorted.
	owned []string
	// names are the namespaces that RBAC names, which may not exist. all means that RBAC
	// allows every namespace.
	names map[string]bool
	all   bool
}

// visibleNamespacesOf returns the set of namespaces that a user may see now.
func (v *authorizationCache) visibleNamespacesOf(who user.Info) *visibleNamespaces {
	q := question{verb: "get", resource: "namespaces"}
	if everywhere(v, who, q) {
		return &visibleNamespaces{owned: v.owned(who), all: true}
	}
	return &visibleNamespaces{owned: v.owned(who), names: v.granted(who, q)}
}

// sees reports whether a namespace with this name and these labels is visible.
func (r *visibleNamespaces) sees(name string, set map[string]string) bool {
	return r.owns(set) || (r.all || r.names[name]) && ofTenant(set)
}

// owns reports whether a namespace with these labels belongs to a Tenant that the user
// owns.
func (r *visibleNamespaces) owns(set map[string]string) bool {
	return set[v1alpha1.LabelTenant] != "" && slices.Contains(r.owned, set[v1alpha1.LabelTenant])
}

// foreign reports whether a namespace with these labels belongs to another tenant, so that
// it is visible only by RBAC.
func (r *visibleNamespaces) foreign(set map[string]string) bool { return ofTenant(set) && !r.owns(set) }

// seesMore reports whether the user may see namespaces of other tenants.
func (v *authorizationCache) seesMore(r *visibleNamespaces) bool {
	if r.all {
		return true
	}
	for name := range r.names {
		if ns, ok := v.namespace(name); ok && r.foreign(ns.Labels) {
			return true
		}
	}
	return false
}

// parts returns selectors that together select all visible namespaces, and maybe others.
func (r *visibleNamespaces) parts() []labels.Selector {
	if r.all {
		// No selector selects objects that have one of several labels.
		return []labels.Selector{labels.Everything()}
	}
	var parts []labels.Selector
	if len(r.owned) > 0 {
		parts = append(parts, oneOf(v1alpha1.LabelTenant, r.owned))
	}
	return append(parts, oneOf(corev1.LabelMetadataName, slices.Sorted(maps.Keys(r.names))))
}

// ofTenant reports whether a namespace with these labels belongs to a tenant, by any of the
// tenant labels.
func ofTenant(set map[string]string) bool {
	return slices.ContainsFunc(tenantLabels, func(label string) bool { return set[label] != "" })
}

package proxy

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
)

// reach is which namespaces somebody may see: those of the Tenants that they own, and
// of other tenants' those that RBAC lets them get. No one selector selects that, but
// whether a namespace is among them can be told from its name and its labels alone. So
// each version of a namespace is seen or not, whatever else is known by then.
type reach struct {
	// owned are names of Tenants, sorted.
	owned []string
	// names are the namespaces that RBAC names, there or not; all is every one.
	names map[string]bool
	all   bool
}

// reach is what somebody may see now.
func (v *view) reach(who user.Info) *reach {
	q := question{verb: "get", resource: "namespaces"}
	if everywhere(v, who, q) {
		return &reach{owned: v.owned(who), all: true}
	}
	return &reach{owned: v.owned(who), names: v.granted(who, q)}
}

// sees says whether a namespace of this name, with these labels, is to be seen.
func (r *reach) sees(name string, set map[string]string) bool {
	return r.owns(set) || (r.all || r.names[name]) && ofTenant(set)
}

// owns says whether a namespace with these labels is of a Tenant that is owned.
func (r *reach) owns(set map[string]string) bool {
	return set[v1alpha1.LabelTenant] != "" && slices.Contains(r.owned, set[v1alpha1.LabelTenant])
}

// foreign says whether a namespace with these labels is another tenant's, so that only
// RBAC lets it be seen.
func (r *reach) foreign(set map[string]string) bool { return ofTenant(set) && !r.owns(set) }

// beyond says whether more is to be seen than what is owned.
func (v *view) beyond(r *reach) bool {
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

// parts are selectors that together select at least what is to be seen.
func (r *reach) parts() []labels.Selector {
	if r.all {
		// Whether one of several labels is there cannot be asked for.
		return []labels.Selector{labels.Everything()}
	}
	var parts []labels.Selector
	if len(r.owned) > 0 {
		parts = append(parts, oneOf(v1alpha1.LabelTenant, r.owned))
	}
	return append(parts, oneOf(corev1.LabelMetadataName, slices.Sorted(maps.Keys(r.names))))
}

// ofTenant says whether a namespace with these labels is a tenant's, whoever says so.
func ofTenant(set map[string]string) bool {
	return slices.ContainsFunc(tenantLabels, func(label string) bool { return set[label] != "" })
}

package autofix

import (
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// allVerbs replace "*" in the verbs of a role. They do not include the verbs about rights:
// bind, escalate and impersonate.
var allVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// fluxResources replace "*" in the resources of a group of Flux. They do not include
// subresources, since only Flux writes the status.
var fluxResources = map[string][]string{
	"source.toolkit.fluxcd.io":       {"buckets", "gitrepositories", "helmcharts", "helmrepositories", "ocirepositories"},
	"kustomize.toolkit.fluxcd.io":    {"kustomizations"},
	"helm.toolkit.fluxcd.io":         {"helmreleases"},
	"notification.toolkit.fluxcd.io": {"alerts", "providers", "receivers"},
	"image.toolkit.fluxcd.io":        {"imagepolicies", "imagerepositories", "imageupdateautomations"},
}

// alwaysDenied are rights that no replacement for a tenant's role may contain.
var alwaysDenied = []rbacv1.PolicyRule{
	{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"bind", "escalate", "impersonate"}},
	{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"*"}, Verbs: writeVerbs},
	{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token", "namespaces", "namespaces/status", "namespaces/finalize", "resourcequotas", "limitranges"}, Verbs: writeVerbs},
	{APIGroups: []string{"source.toolkit.fluxcd.io"}, Resources: []string{"externalartifacts"}, Verbs: writeVerbs},
	{APIGroups: []string{"*"}, Resources: []string{"*/status"}, Verbs: writeVerbs},
}

var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

func rulesOf(role *yaml.Node) []*yaml.Node {
	if rules := yamledit.At(role, "rules"); rules != nil && rules.Kind == yaml.SequenceNode {
		return rules.Content
	}
	return nil
}

// groupResources returns the resources that replace "*" in groups, or nil if the resources of a
// group are not known.
func groupResources(groups []string) []string {
	if len(groups) != 1 {
		return nil
	}
	return fluxResources[groups[0]]
}

// expand replaces "*" by the known entries.
func expand(all, known []string) []string {
	if slices.Contains(all, "*") && known != nil {
		return slices.Clone(known)
	}
	return slices.Clone(all)
}

// covers reports whether patterns match a verb, or a resource with its subresource.
func covers(patterns []string, s string) bool {
	_, subresource, _ := strings.Cut(s, "/")
	return slices.ContainsFunc(patterns, func(p string) bool {
		return p == "*" || p == s || subresource != "" && p == "*/"+subresource
	})
}

func overlaps(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return s == "*" || slices.Contains(b, s) || slices.Contains(b, "*") })
}

// wildcards reports whether a role has a "*" that cannot be replaced by a list, so that no
// right can be removed from the role.
func wildcards(role *yaml.Node) bool {
	return slices.ContainsFunc(rulesOf(role), func(rule *yaml.Node) bool {
		groups := yamledit.Strs(rule, "apiGroups")
		return slices.Contains(groups, "*") || slices.Contains(yamledit.Strs(rule, "resources"), "*") && groupResources(groups) == nil
	})
}

// safe reports whether a role has no right that a tenant must not have.
func safe(role *yaml.Node) bool {
	if yamledit.At(role, "aggregationRule") != nil {
		return false
	}
	return !slices.ContainsFunc(rulesOf(role), func(rule *yaml.Node) bool {
		groups, resources, verbs := yamledit.Strs(rule, "apiGroups"), yamledit.Strs(rule, "resources"), yamledit.Strs(rule, "verbs")
		if slices.Contains(groups, "*") || slices.Contains(resources, "*") || slices.Contains(verbs, "*") {
			return true
		}
		return slices.ContainsFunc(alwaysDenied, func(n rbacv1.PolicyRule) bool {
			return overlaps(groups, n.APIGroups) &&
				slices.ContainsFunc(resources, func(r string) bool { return covers(n.Resources, r) }) &&
				slices.ContainsFunc(verbs, func(v string) bool { return covers(n.Verbs, v) })
		})
	})
}

// useful reports whether a role has the rights to deliver applications.
func useful(role *yaml.Node) bool {
	allows := func(group, resource string) bool {
		return slices.ContainsFunc(rulesOf(role), func(rule *yaml.Node) bool {
			return overlaps(yamledit.Strs(rule, "apiGroups"), []string{group}) && covers(yamledit.Strs(rule, "resources"), resource) && covers(yamledit.Strs(rule, "verbs"), "create")
		})
	}
	return allows("", "configmaps") && allows("apps", "deployments")
}

package remedy

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// allVerbs are what "*" stands for in a role, without those that are about other
// people's rights.
var allVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// fluxResources are what "*" stands for in a group of Flux, without subresources:
// their status is Flux's own to write.
var fluxResources = map[string][]string{
	"source.toolkit.fluxcd.io":       {"buckets", "gitrepositories", "helmcharts", "helmrepositories", "ocirepositories"},
	"kustomize.toolkit.fluxcd.io":    {"kustomizations"},
	"helm.toolkit.fluxcd.io":         {"helmreleases"},
	"notification.toolkit.fluxcd.io": {"alerts", "providers", "receivers"},
	"image.toolkit.fluxcd.io":        {"imagepolicies", "imagerepositories", "imageupdateautomations"},
}

// never are rights that no tenant's role has that others can be moved to.
var never = []rbacv1.PolicyRule{
	{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"bind", "escalate", "impersonate"}},
	{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"*"}, Verbs: writing},
	{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token", "namespaces", "namespaces/status", "namespaces/finalize", "resourcequotas", "limitranges"}, Verbs: writing},
	{APIGroups: []string{"source.toolkit.fluxcd.io"}, Resources: []string{"externalartifacts"}, Verbs: writing},
	{APIGroups: []string{"*"}, Resources: []string{"*/status"}, Verbs: writing},
}

var writing = []string{"create", "update", "patch", "delete", "deletecollection"}

func rulesOf(role *yaml.Node) []*yaml.Node {
	if rules := at(role, "rules"); rules != nil && rules.Kind == yaml.SequenceNode {
		return rules.Content
	}
	return nil
}

// groupResources are what "*" stands for in groups; nil if that is not known.
func groupResources(groups []string) []string {
	if len(groups) != 1 {
		return nil
	}
	return fluxResources[groups[0]]
}

// expand replaces "*" by what it stands for.
func expand(all, known []string) []string {
	if slices.Contains(all, "*") && known != nil {
		return slices.Clone(known)
	}
	return slices.Clone(all)
}

// covers says whether patterns match a verb, or a resource with its subresource.
func covers(patterns []string, s string) bool {
	_, subresource, _ := strings.Cut(s, "/")
	return slices.ContainsFunc(patterns, func(p string) bool {
		return p == "*" || p == s || subresource != "" && p == "*/"+subresource
	})
}

func overlaps(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return s == "*" || slices.Contains(b, s) || slices.Contains(b, "*") })
}

// wildcards says whether a role allows what cannot be listed, so that nothing can
// be taken out of it.
func wildcards(role *yaml.Node) bool {
	return slices.ContainsFunc(rulesOf(role), func(rule *yaml.Node) bool {
		groups := strs(rule, "apiGroups")
		return slices.Contains(groups, "*") || slices.Contains(strs(rule, "resources"), "*") && groupResources(groups) == nil
	})
}

// safe says whether a role has nothing that a tenant must not have.
func safe(role *yaml.Node) bool {
	if at(role, "aggregationRule") != nil {
		return false
	}
	return !slices.ContainsFunc(rulesOf(role), func(rule *yaml.Node) bool {
		groups, resources, verbs := strs(rule, "apiGroups"), strs(rule, "resources"), strs(rule, "verbs")
		if slices.Contains(groups, "*") || slices.Contains(resources, "*") || slices.Contains(verbs, "*") {
			return true
		}
		return slices.ContainsFunc(never, func(n rbacv1.PolicyRule) bool {
			return overlaps(groups, n.APIGroups) &&
				slices.ContainsFunc(resources, func(r string) bool { return covers(n.Resources, r) }) &&
				slices.ContainsFunc(verbs, func(v string) bool { return covers(n.Verbs, v) })
		})
	})
}

// useful says whether a role is one to deliver applications with.
func useful(role *yaml.Node) bool {
	allows := func(group, resource string) bool {
		return slices.ContainsFunc(rulesOf(role), func(rule *yaml.Node) bool {
			return overlaps(strs(rule, "apiGroups"), []string{group}) && covers(strs(rule, "resources"), resource) && covers(strs(rule, "verbs"), "create")
		})
	}
	return allows("", "configmaps") && allows("apps", "deployments")
}

package autofix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// lacking returns the resources that a tenant delivers although a role does not allow them. It omits the
// resources that no tenant's role may contain.
func lacking(role *yaml.Node, delivers []schema.GroupResource) []schema.GroupResource {
	var all []schema.GroupResource
	for _, r := range delivers {
		if forbids(alwaysDenied, r) {
			continue
		}
		for _, verb := range allVerbs {
			allowed := slices.ContainsFunc(rulesOf(role), func(rule *yaml.Node) bool {
				groups := yamledit.Strs(rule, "apiGroups")
				return (slices.Contains(groups, r.Group) || slices.Contains(groups, "*")) && len(yamledit.Strs(rule, "resourceNames")) == 0 &&
					covers(yamledit.Strs(rule, "resources"), r.Resource) && covers(yamledit.Strs(rule, "verbs"), verb)
			})
			if !allowed {
				all = append(all, r)
				break
			}
		}
	}
	return all
}

// forbids reports whether denied rules include the rights to deliver a resource.
func forbids(rules []rbacv1.PolicyRule, r schema.GroupResource) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return (slices.Contains(rule.APIGroups, r.Group) || slices.Contains(rule.APIGroups, "*")) &&
			covers(rule.Resources, r.Resource) && covers(rule.Verbs, "create")
	})
}

// allow adds the rights to deliver resources to a role.
func (t *tree) allow(role object, delivers []schema.GroupResource) {
	for _, r := range lacking(role.node, delivers) {
		t.edit(role.file, func(s *yamledit.Stream) error {
			return s.AppendItem(role.doc, fmt.Sprintf("apiGroups: [%s]\nresources: [%s]\nverbs: [%s]\n", yamledit.Scalar(r.Group), yamledit.Scalar(r.Resource), list(allVerbs)), "rules")
		})
	}
}

// isNew reports whether a patch adds a file.
func (t *tree) isNew(file string) bool {
	_, old := t.before[file]
	return !old
}

// noteDenied adds a note about the resources that a tenant delivers and that its role no longer
// allows after the fix.
func (t *tree) noteDenied(tenant discovery.Tenant, denied []rbacv1.PolicyRule) {
	var names []string
	for _, r := range tenant.Delivers {
		if forbids(denied, r) {
			names = append(names, r.String())
		}
	}
	if len(names) > 0 {
		t.note(fmt.Sprintf("tenant %s delivers %s, which the narrower role leaves out: deliver these from the platform's repository", tenant.Name, strings.Join(names, ", ")))
	}
}

// note adds a line of text before the diff.
func (t *tree) note(text string) {
	if line := "# " + text + "\n"; !slices.Contains(t.notes, line) {
		t.notes = append(t.notes, line)
	}
}

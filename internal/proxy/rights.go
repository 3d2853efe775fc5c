package proxy

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// question is a verb and a resource for which RBAC is evaluated.
type question struct {
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
func everywhere(g grants, who user.Info, q question) bool {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return true
	}
	for _, key := range keysOf(who) {
		for _, b := range g.clusterBindings(key) {
			if q.allowedBy(g.rules("", b.RoleRef)) {
				return true
			}
		}
	}
	return false
}

// within reports whether a user has a right in a namespace, by a right in the namespace or in
// the whole cluster. It returns the result of the API server's RBAC: see
// k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac.
func within(g grants, who user.Info, q question, namespace string) bool {
	if everywhere(g, who, q) {
		return true
	}
	for _, key := range keysOf(who) {
		for _, b := range g.bindings(key, namespace) {
			if q.allowedBy(g.rules(namespace, b.RoleRef)) {
				return true
			}
		}
	}
	return false
}

// allowedBy reports whether one of the rules allows the question.
func (q question) allowedBy(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return has(r.Verbs, q.verb) && has(r.APIGroups, q.group) && q.isResource(r.Resources) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, q.name))
	})
}

// has reports whether a list of a rule contains a value or "*".
func has(list []string, value string) bool {
	return slices.Contains(list, rbacv1.VerbAll) || slices.Contains(list, value)
}

func (q question) isResource(list []string) bool {
	whole := q.resource
	if q.subresource != "" {
		whole += "/" + q.subresource
	}
	return has(list, whole) || (q.subresource != "" && slices.Contains(list, "*/"+q.subresource))
}

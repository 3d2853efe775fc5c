package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func addPrivilegeEscalation(register func(...Attack)) {
	binding := func(e *Scenario) *unstructured.Unstructured {
		return object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", name("i4"), map[string]any{
			"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
			// The account does not exist: rights of the tenant's own account would make
			// concurrent attacks succeed.
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": name("i4"), "namespace": e.Account.Namespace}},
		})
	}
	role := func(e *Scenario) *unstructured.Unstructured {
		return object("rbac.authorization.k8s.io/v1", "Role", e.Victim.Namespace, name("i4"), map[string]any{
			"rules": []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}},
		})
	}
	attack := Attack{
		ID:         "I4",
		Title:      "grants itself more rights than it has",
		Controls:   []string{"RBAC (bind, escalate)"},
		References: []string{"MTB-PL2-CC-TI-1"},
		Fix: Fix{
			Advice: "give the tenant's role no verbs on cluster roles and their bindings, and neither bind nor escalate",
			Rights: true,
			Denied: []rbacv1.PolicyRule{
				denied(rbacv1.GroupName, []string{"bind", "escalate"}, "roles", "clusterroles"),
				denied(rbacv1.GroupName, writing, "clusterroles", "clusterrolebindings"),
			},
		},
	}
	clusterRole := func(e *Scenario) *unstructured.Unstructured {
		u := role(e)
		u.SetKind("ClusterRole")
		u.SetNamespace("")
		return u
	}
	there := object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "cluster-admin", nil)
	attack.Via, attack.Owners, attack.Kinds = API, OwnersAnywhere, []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		all := []request{
			{what: "bind itself to cluster-admin", aimed: creating(binding)},
			{what: "bind an account of its own to cluster-admin, by a change of a binding", aimed: merging(there, fmt.Sprintf(`{"subjects":[{"kind":"ServiceAccount","name":%q,"namespace":%q}]}`, name("i4"), e.Account.Namespace))},
			{what: "make a role for everything, which others can give it or which joins the roles that it has", aimed: creating(clusterRole)},
			{what: "make a role for everything in another tenant's namespace", aimed: creating(role)},
		}
		all = append(all, request{what: "widen a role or a binding that exists", aimed: func(ctx context.Context, e *Scenario) error {
			return widens(ctx, e, "clusterroles", "clusterrolebindings")
		}})
		// An account with all rights in its namespace cannot give itself more there.
		everything, err := e.isAllowed(ctx, authorizationv1.ResourceAttributes{Namespace: e.Namespace, Group: "*", Resource: "*", Verb: "*"})
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		if !everything {
			all = append(all,
				request{what: "widen a role or a binding of its own namespace", aimed: func(ctx context.Context, e *Scenario) error {
					return widens(ctx, e, "roles", "rolebindings")
				}},
				request{what: "make a role for everything in its own namespace", aimed: creating(func(e *Scenario) *unstructured.Unstructured {
					u := role(e)
					u.SetNamespace(e.Namespace)
					return u
				})},
				request{what: "bind itself to cluster-admin in its own namespace", aimed: creating(func(e *Scenario) *unstructured.Unstructured {
					u := binding(e)
					u.SetKind("RoleBinding")
					u.SetNamespace(e.Namespace)
					return u
				})},
			)
		}
		f := requests(all...)(ctx, e)
		if f.Outcome != Stopped {
			return f
		}
		bound, err := e.bindsMore(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		return thenTry(ctx, e, f, bound)
	}
	register(attack)
	attack.Owners = OwnersNever
	register(deliversManifests(attack, "ClusterRoleBinding", binding, ownConfigMap("i4")))
	register(deliversByChart(attack, "ClusterRoleBinding", binding, ownConfigMap("i4-release")))
}

// widens looks for the right to escalate an existing role, and for the right to bind a role in the whole
// cluster. A right to bind some roles in the tenant's own namespace is ordinary.
func widens(ctx context.Context, e *Scenario, roles, bindings string) error {
	const group = "." + rbacv1.GroupName
	type way struct{ verb, on, writes string }
	namespace, ways := e.Namespace, []way{{"escalate", roles, roles}}
	if roles == "clusterroles" {
		namespace, ways = e.Victim.Namespace, append(ways, way{"bind", roles, bindings})
	}
	holds := func(resource string, counts func(string) bool, verbs ...string) error {
		return holdsNone(namespace, right{what: "give itself more rights", verbs: verbs, resources: []string{resource + group}, counts: counts})(ctx, e)
	}
	status, err := e.rulesIn(ctx, namespace)
	if err != nil {
		return fmt.Errorf("cannot read the tenant's rights: %w", err)
	}
	var last error
	for _, w := range ways {
		var held *heldError
		if last = holds(w.on, nil, w.verb); !errors.As(last, &held) {
			if judge(last, "").Outcome != Stopped {
				return last
			}
			continue
		}
		var counts func(string) bool
		writing := []string{"create", "update", "patch"}
		// The right to escalate roles with names is a right to change these.
		if names, all := namesOf(status.ResourceRules, w.verb, w.on+group); w.on == w.writes && !all {
			counts, writing = func(name string) bool { return slices.Contains(names, name) }, writing[1:]
		}
		if last = holds(w.writes, counts, writing...); judge(last, "").Outcome != Stopped {
			return last
		}
	}
	return last
}

// bindsMore returns the requests with which the tenant would bind a role in its own namespace that a rule with the
// verb bind names, if this role has more rights there than the tenant: the other attacks try the tenant's rights without
// that role.
func (e *Scenario) bindsMore(ctx context.Context) ([]request, error) {
	status, err := e.rulesIn(ctx, e.Namespace)
	if err != nil {
		return nil, fmt.Errorf("cannot read the tenant's rights: %w", err)
	}
	var all []request
	for _, kind := range []string{"ClusterRole", "Role"} {
		names, _ := namesOf(status.ResourceRules, "bind", strings.ToLower(kind)+"s."+rbacv1.GroupName)
		slices.Sort(names)
		for _, of := range slices.Compact(names) {
			u := object(rbacv1.SchemeGroupVersion.String(), kind, "", of, nil)
			if kind == "Role" {
				u.SetNamespace(e.Namespace)
			}
			role := &rbacv1.ClusterRole{}
			if err := e.Admin.Get(ctx, keyOf(u), u); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("cannot read %s %s: %w", kind, of, err)
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, role); err != nil {
				return nil, fmt.Errorf("cannot read %s %s: %w", kind, of, err)
			}
			if hasAll(status.ResourceRules, role.Rules) {
				continue
			}
			all = append(all, request{
				what: fmt.Sprintf("bind %s %s, which has rights that it lacks, in its own namespace", kind, of),
				aimed: creating(func(e *Scenario) *unstructured.Unstructured {
					return object(rbacv1.SchemeGroupVersion.String(), "RoleBinding", e.Namespace, name("i4"), map[string]any{
						"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": kind, "name": of},
						"subjects": []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "name": name("i4"), "namespace": e.Account.Namespace}},
					})
				}),
			})
		}
	}
	return all, nil
}

// hasAll reports whether rules give all rights of a role to namespaced resources.
func hasAll(held []authorizationv1.ResourceRule, role []rbacv1.PolicyRule) bool {
	for _, rule := range role {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				full := resource
				if group != "" {
					plain, subresource, sub := strings.Cut(resource, "/")
					if full = plain + "." + group; sub {
						full += "/" + subresource
					}
				}
				for _, verb := range rule.Verbs {
					if !slices.ContainsFunc(held, func(h authorizationv1.ResourceRule) bool {
						return covers(h, verb, full) && (len(h.ResourceNames) == 0 || len(rule.ResourceNames) > 0 && within(rule.ResourceNames, h.ResourceNames))
					}) {
						return false
					}
				}
			}
		}
	}
	return true
}

// namesOf returns the names in the rules that give a verb on a resource, and whether one of them has no names and so
// covers all objects.
func namesOf(rules []authorizationv1.ResourceRule, verb, resource string) (names []string, all bool) {
	for _, rule := range rules {
		if covers(rule, verb, resource) {
			names, all = append(names, rule.ResourceNames...), all || len(rule.ResourceNames) == 0
		}
	}
	return names, all
}

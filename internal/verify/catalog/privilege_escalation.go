package catalog

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		return requests(all...)(ctx, e)
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
	holds := func(resource string, verbs ...string) error {
		return holdsNone(namespace, right{what: "give itself more rights", verbs: verbs, resources: []string{resource + group}})(ctx, e)
	}
	var last error
	for _, w := range ways {
		var held *heldError
		if last = holds(w.on, w.verb); !errors.As(last, &held) {
			if judge(last, "").Outcome != Stopped {
				return last
			}
			continue
		}
		if last = holds(w.writes, "create", "update", "patch"); judge(last, "").Outcome != Stopped {
			return last
		}
	}
	return last
}

package catalog

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addRightsForEverybody(register func(...Attack)) {
	register(Attack{
		ID: "I4", Via: API, Kind: "RoleBinding", Owners: OwnersWithin,
		Kinds:      []string{"RoleBinding"},
		Title:      "binds a role in its namespace to all users, including other tenants and anonymous callers",
		Controls:   []string{"RBAC", "policy on the subjects of RoleBindings"},
		References: []string{"Kubernetes: role based access control good practices"},
		Fix: Fix{
			Advice: "refuse RoleBindings of tenants to groups and users of Kubernetes, such as system:authenticated, with a ValidatingAdmissionPolicy, or give the tenant's role no write verb on rolebindings",
			Rights: true,
			Denied: []rbacv1.PolicyRule{denied(rbacv1.GroupName, writing, "rolebindings")},
		},
		Slow: true,
		Run:  sharesWithEverybody,
	})
}

func sharesWithEverybody(ctx context.Context, e *Scenario) Finding {
	role := e.ownRole(ctx)
	shared := func(e *Scenario) *unstructured.Unstructured { return e.sharing(role, rbacv1.GroupKind, ownAccounts(e)) }
	var all []request
	for _, subject := range []struct{ who, kind, name string }{
		{"everybody who has an account on the cluster", rbacv1.GroupKind, "system:authenticated"},
		{"everybody who has none", rbacv1.GroupKind, "system:unauthenticated"},
		{"anonymous callers", rbacv1.UserKind, "system:anonymous"},
		{"all service accounts of the cluster", rbacv1.GroupKind, "system:serviceaccounts"},
		{"all service accounts of another tenant's namespace", rbacv1.GroupKind, "system:serviceaccounts:" + e.Victim.Namespace},
	} {
		all = append(all, request{
			what:  "give the rights that it has in its namespace to " + subject.who,
			aimed: creating(func(e *Scenario) *unstructured.Unstructured { return e.sharing(role, subject.kind, subject.name) }, shared),
			own:   creating(shared),
		})
	}
	return requests(all...)(ctx, e)
}

// ownAccounts returns the group of all accounts in the tenant's namespace.
func ownAccounts(e *Scenario) string { return "system:serviceaccounts:" + e.Namespace }

// sharing returns a RoleBinding that gives a role to a subject.
func (e *Scenario) sharing(role, kind, to string) *unstructured.Unstructured {
	return object("rbac.authorization.k8s.io/v1", "RoleBinding", e.Namespace, name("i4-everybody"), map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{"kind": kind, "apiGroup": rbacv1.GroupName, "name": to}},
	})
}

// ownRole returns a ClusterRole that the attacker can bind in the namespace: RBAC prevents users from
// granting rights that they do not have. If there is none, it returns view, which most tenants have.
func (e *Scenario) ownRole(ctx context.Context) string {
	const usual = "view"
	for _, r := range e.Tenant.Rights {
		role, ok := strings.CutPrefix(r.Role, "ClusterRole/")
		if ok && r.Namespace == e.Namespace && e.tryCreate(ctx, e.sharing(role, rbacv1.GroupKind, ownAccounts(e))) == nil {
			return role
		}
	}
	return usual
}

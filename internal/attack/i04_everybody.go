package attack

import (
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/tenants"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func init() {
	to := func(kind string, name func(*Env) string) func(*Env) *unstructured.Unstructured {
		return func(e *Env) *unstructured.Unstructured { return e.sharing(kind, name(e)) }
	}
	constant := func(s string) func(*Env) string { return func(*Env) string { return s } }
	own := creating(to(rbacv1.GroupKind, func(e *Env) string { return "system:serviceaccounts:" + e.Namespace }))
	var all []request
	for _, subject := range []struct {
		who, kind string
		name      func(*Env) string
	}{
		{"everybody who has an account on the cluster", rbacv1.GroupKind, constant("system:authenticated")},
		{"everybody who has none", rbacv1.GroupKind, constant("system:unauthenticated")},
		{"anonymous callers", rbacv1.UserKind, constant("system:anonymous")},
		{"all service accounts of the cluster", rbacv1.GroupKind, constant("system:serviceaccounts")},
		{"all service accounts of another tenant's namespace", rbacv1.GroupKind, func(e *Env) string { return "system:serviceaccounts:" + e.Victim.Namespace }},
	} {
		all = append(all, request{what: "give the rights that it has in its namespace to " + subject.who, aimed: creating(to(subject.kind, subject.name)), own: own})
	}
	register(Attack{
		ID: "I4", Via: API, Kind: "RoleBinding", Owners: OwnersWithin,
		Title:      "gives the rights that it has in its namespace to everybody, other tenants and anonymous callers included",
		Controls:   []string{"RBAC", "policy on the subjects of RoleBindings"},
		References: []string{"Kubernetes: role based access control good practices"},
		Fix: Fix{
			Advice: "refuse RoleBindings of tenants to groups and users of Kubernetes, such as system:authenticated, with a ValidatingAdmissionPolicy, or give the tenant's role no write verb on rolebindings",
			Rights: true,
			Denied: []rbacv1.PolicyRule{denied(rbacv1.GroupName, writing, "rolebindings")},
		},
		Run: requests(all...),
	})
}

// sharing is a RoleBinding that gives somebody a role that whoever attacks has.
func (e *Env) sharing(kind, to string) *unstructured.Unstructured {
	return object("rbac.authorization.k8s.io/v1", "RoleBinding", e.Namespace, name("i4-everybody"), map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": e.ownRole()},
		"subjects": []any{map[string]any{"kind": kind, "apiGroup": rbacv1.GroupName, "name": to}},
	})
}

// ownRole is the ClusterRole that whoever attacks has in the namespace: RBAC lets
// nobody give more than they have. Where there is none, it is one that most have.
func (e *Env) ownRole() string {
	subjects := []string{"ServiceAccount " + e.Account.String(), "User " + e.Account.User()}
	if e.Owner != nil {
		subjects = []string{e.Owner.String()}
	}
	const usual = "view"
	i := slices.IndexFunc(e.Tenant.Rights, func(r tenants.Right) bool {
		return r.Namespace == e.Namespace && slices.Contains(subjects, r.Subject) && strings.HasPrefix(r.Role, "ClusterRole/")
	})
	if i < 0 {
		return usual
	}
	return strings.TrimPrefix(e.Tenant.Rights[i].Role, "ClusterRole/")
}

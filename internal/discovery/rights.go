package discovery

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Right is a role that a binding gives to a tenant.
type Right struct {
	// Role is the role as KIND/NAME. Namespace is the namespace in which it applies; ""
	// means the whole cluster.
	Role, Namespace string
	// Binding is the object that grants the role, as RoleBinding NAMESPACE/NAME or
	// ClusterRoleBinding NAME. Subject is the tenant's subject in the binding, as
	// ServiceAccount NAMESPACE/NAME, User NAME or Group NAME.
	Binding, Subject string
	// AppliedBy is the Kustomization that applied the binding, as NAMESPACE/NAME; "" if
	// there is none.
	AppliedBy string
}

func (r Right) String() string {
	s := r.Binding + " gives " + r.Subject + " " + r.Role
	if r.AppliedBy != "" {
		s += " (applied by Kustomization " + r.AppliedBy + ")"
	}
	return s
}

// clusterAdmin is the role that allows everything.
const clusterAdmin = "ClusterRole/cluster-admin"

// ClusterAdmin returns the bindings that give the tenant the role cluster-admin.
func (t Tenant) ClusterAdmin() []Right {
	return slices.DeleteFunc(slices.Clone(t.Rights), func(r Right) bool { return r.Role != clusterAdmin })
}

// grant is a RoleBinding or ClusterRoleBinding with its role.
type grant struct {
	name      string
	namespace string
	role      rbacv1.RoleRef
	subjects  []rbacv1.Subject
	applied   string
	// tenant is the tenant in the binding's labels.
	tenant string
}

// bootstrapping labels the default bindings of Kubernetes.
const bootstrapping = "kubernetes.io/bootstrapping"

// grants returns all bindings except the default bindings of Kubernetes.
func grants(bindings []rbacv1.RoleBinding, clusterBindings []rbacv1.ClusterRoleBinding) []grant {
	var all []grant
	tenant := func(o metav1.Object) string {
		name, _ := tenancy.TenantOf(o.GetLabels())
		return name
	}
	for _, b := range bindings {
		all = append(all, grant{"RoleBinding " + b.Namespace + "/" + b.Name, b.Namespace, b.RoleRef, b.Subjects, appliedBy(&b), tenant(&b)})
	}
	for _, b := range clusterBindings {
		all = append(all, grant{"ClusterRoleBinding " + b.Name, "", b.RoleRef, b.Subjects, appliedBy(&b), tenant(&b)})
	}
	return slices.DeleteFunc(all, func(g grant) bool { return g.applied == bootstrapping })
}

// appliedBy returns the Kustomization that applied an object, as NAMESPACE/NAME. It returns
// bootstrapping for a default object of Kubernetes, and "" for all other objects.
func appliedBy(o metav1.Object) string {
	labels := o.GetLabels()
	if labels[bootstrapping] != "" {
		return bootstrapping
	}
	namespace, name := labels["kustomize.toolkit.fluxcd.io/namespace"], labels["kustomize.toolkit.fluxcd.io/name"]
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// subject returns the subject of a binding that belongs to the tenant, and whether there is
// one. It prefers an account to the users and groups of the account.
func (t *Tenant) subject(subjects []rbacv1.Subject) (string, bool) {
	last := func(s rbacv1.Subject) int {
		if s.Kind == rbacv1.ServiceAccountKind {
			return 0
		}
		return 1
	}
	subjects = slices.SortedStableFunc(slices.Values(subjects), func(a, b rbacv1.Subject) int { return cmp.Compare(last(a), last(b)) })
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			if account := (Account{s.Namespace, s.Name}); slices.Contains(t.Accounts, account) {
				return "ServiceAccount " + account.String(), true
			}
		case rbacv1.UserKind:
			// Older releases of Flux impersonate this user for a namespace.
			if slices.ContainsFunc(t.Namespaces, func(ns string) bool { return s.Name == "gotk:"+ns+":reconciler" }) ||
				slices.ContainsFunc(t.Accounts, func(a Account) bool { return s.Name == a.User() }) {
				return "User " + s.Name, true
			}
		case rbacv1.GroupKind:
			if slices.ContainsFunc(t.Accounts, func(a Account) bool { return slices.Contains(a.Groups(), s.Name) }) {
				return "Group " + s.Name, true
			}
		}
	}
	return "", false
}

// assignRights collects the roles of the tenants in all namespaces and in the cluster.
func (d *discovery) assignRights() {
	for _, t := range d.tenants {
		for _, g := range d.grants {
			subject, named := t.subject(g.subjects)
			if !named {
				continue
			}
			t.addRight(g, subject)
		}
		d.assignOwnersRights(t)
		slices.Sort(t.Roles)
		slices.SortFunc(t.Rights, func(a, b Right) int { return cmp.Compare(a.Binding, b.Binding) })
	}
}

// addRight adds the right of a binding to one of the tenant's subjects.
func (t *Tenant) addRight(g grant, subject string) {
	right := Right{
		Role: g.role.Kind + "/" + g.role.Name, Namespace: g.namespace,
		Binding: g.name, Subject: subject, AppliedBy: g.applied,
	}
	t.Rights = append(t.Rights, right)
	role := right.Role
	switch {
	case g.namespace == "":
		role += " (everywhere)"
	case !slices.Contains(t.Namespaces, g.namespace):
		role += fmt.Sprintf(" (in %s)", g.namespace)
	}
	if !slices.Contains(t.Roles, role) {
		t.Roles = append(t.Roles, role)
	}
}

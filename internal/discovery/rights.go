package discovery

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
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
	// AppliedBy is the Kustomization, HelmRelease or ResourceSet that applied the binding;
	// without a kind if there is none.
	AppliedBy flux.Ref
}

func (r Right) String() string {
	s := r.Binding + " gives " + r.Subject + " " + r.Role
	if by := r.AppliedBy; by.Kind != "" {
		s += fmt.Sprintf(" (applied by %s %s/%s)", by.Kind, by.Namespace, by.Name)
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
	applied   flux.Ref
	// tenant is the tenant in the binding's labels.
	tenant string
}

// bootstrapping labels the default bindings of Kubernetes.
const bootstrapping = "kubernetes.io/bootstrapping"

// grants returns all bindings except the default bindings of Kubernetes.
func grants(bindings []rbacv1.RoleBinding, clusterBindings []rbacv1.ClusterRoleBinding) []grant {
	var all []grant
	add := func(name string, o metav1.Object, role rbacv1.RoleRef, subjects []rbacv1.Subject) {
		if o.GetLabels()[bootstrapping] == "" {
			tenant, _ := tenancy.TenantOf(o.GetLabels())
			all = append(all, grant{name, o.GetNamespace(), role, subjects, flux.AppliedBy(o.GetLabels()), tenant})
		}
	}
	for _, b := range bindings {
		add("RoleBinding "+b.Namespace+"/"+b.Name, &b, b.RoleRef, b.Subjects)
	}
	for _, b := range clusterBindings {
		add("ClusterRoleBinding "+b.Name, &b, b.RoleRef, b.Subjects)
	}
	return all
}

// bySubject returns the indexes of the grants of each subject.
func bySubject(all []grant) map[rbacv1.Subject][]int {
	indexes := map[rbacv1.Subject][]int{}
	for i, g := range all {
		for _, s := range g.subjects {
			key := rbacv1.Subject{Kind: s.Kind, Name: s.Name}
			if s.Kind == rbacv1.ServiceAccountKind {
				key.Namespace = s.Namespace
			}
			if of := indexes[key]; len(of) == 0 || of[len(of)-1] != i {
				indexes[key] = append(of, i)
			}
		}
	}
	return indexes
}

// grantsOf returns the grants that have one of the subjects, in order.
func (d *discovery) grantsOf(subjects []rbacv1.Subject) []grant {
	var indexes []int
	for _, s := range subjects {
		indexes = append(indexes, d.bySubject[s]...)
	}
	slices.Sort(indexes)
	var found []grant
	for _, i := range slices.Compact(indexes) {
		found = append(found, d.grants[i])
	}
	return found
}

// appliedBy returns the Kustomization that applied an object, as NAMESPACE/NAME, or "".
func appliedBy(o metav1.Object) string {
	by := flux.AppliedBy(o.GetLabels())
	if by.Kind != flux.Kustomization {
		return ""
	}
	return by.Namespace + "/" + by.Name
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

// Named reports whether one of a binding's subjects is an account of the tenant, a group or
// user of such an account, or an owner.
func (t Tenant) Named(subjects []rbacv1.Subject) bool {
	_, named := t.subject(subjects)
	return named || slices.ContainsFunc(t.Owners, func(o Owner) bool { return slices.ContainsFunc(subjects, o.subject) })
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

// rightOf returns the right that a binding gives to a subject.
func rightOf(g grant, subject string) Right {
	return Right{
		Role: g.role.Kind + "/" + g.role.Name, Namespace: g.namespace,
		Binding: g.name, Subject: subject, AppliedBy: g.applied,
	}
}

// addRight adds the right of a binding to one of the tenant's subjects.
func (t *Tenant) addRight(g grant, subject string) {
	right := rightOf(g, subject)
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

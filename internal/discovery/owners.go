package discovery

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// accountPrefix begins the user name of a service account.
const accountPrefix = "system:serviceaccount:"

// Owner is an owner of a Tenant: a user, a group, or a service account.
type Owner struct {
	// Kind is User, Group or ServiceAccount. Namespace is the namespace of a
	// ServiceAccount.
	Kind, Namespace, Name string
	// Shape is equal for owners of one tenant that are of the same kind and have the same
	// roles in the same namespaces.
	Shape string
}

func (o Owner) String() string {
	if o.Kind == rbacv1.ServiceAccountKind {
		return o.Kind + " " + Account{o.Namespace, o.Name}.String()
	}
	return o.Kind + " " + o.Name
}

// member is the name of an invented user. The user is a member of one group only.
const member = "tenure-attack-member"

// anonymous is the user of requests without credentials, which everybody who reaches the API server can send.
const anonymous = "system:anonymous"

// User returns the owner's user name or, for a group, the name of an invented member.
func (o Owner) User() string {
	switch o.Kind {
	case rbacv1.ServiceAccountKind:
		return Account{o.Namespace, o.Name}.User()
	case rbacv1.GroupKind:
		return member
	}
	return o.Name
}

// Groups returns the groups that the owner has for certain. The cluster does not know
// further groups of a user.
func (o Owner) Groups() []string {
	switch o.Kind {
	case rbacv1.ServiceAccountKind:
		return Account{o.Namespace, o.Name}.Groups()
	case rbacv1.GroupKind:
		return []string{o.Name, "system:authenticated"}
	}
	if o.Name == anonymous {
		return []string{"system:unauthenticated"}
	}
	return []string{"system:authenticated"}
}

// subject reports whether a binding's subject is the owner.
func (o Owner) subject(s rbacv1.Subject) bool {
	if s.Kind == rbacv1.ServiceAccountKind {
		return o.Kind == s.Kind && o.Namespace == s.Namespace && o.Name == s.Name
	}
	return s.Kind == rbacv1.GroupKind && slices.Contains(o.Groups(), s.Name) && s.Name != "system:authenticated" ||
		s.Kind == rbacv1.UserKind && s.Name == o.User()
}

// subjects returns the subjects that are the owner, as [Owner.subject] compares them.
func (o Owner) subjects() []rbacv1.Subject {
	all := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: o.User()}}
	if o.Kind == rbacv1.ServiceAccountKind {
		all = append(all, rbacv1.Subject{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
	}
	for _, group := range o.Groups() {
		if group != "system:authenticated" {
			all = append(all, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: group})
		}
	}
	return all
}

// readOwners reads the owners of each tenant with an object: a Tenant of Tenure, or else a
// Capsule Tenant.
func (d *discovery) readOwners(ctx context.Context, c client.Reader) error {
	d.owners = map[string][]Owner{}
	for _, kind := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind("Tenant"),
		{Group: "capsule.clastix.io", Version: "v1beta2", Kind: "Tenant"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := d.bounds.list(ctx, c, list); err != nil {
			return err
		}
		for _, u := range list.Items {
			if _, known := d.owners[u.GetName()]; !known {
				d.owners[u.GetName()] = ownersOf(u)
			}
		}
	}
	return nil
}

// ownersOf returns the owners in a Tenant. A Capsule Tenant names a service account by its
// user name.
func ownersOf(tenant unstructured.Unstructured) []Owner {
	var owners []Owner
	listed, _, _ := unstructured.NestedSlice(tenant.Object, "spec", "owners")
	for _, entry := range listed {
		fields, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		u := unstructured.Unstructured{Object: fields}
		o := Owner{Kind: nested(u, "kind"), Namespace: nested(u, "namespace"), Name: nested(u, "name")}
		if account, is := strings.CutPrefix(o.Name, accountPrefix); is && o.Kind != rbacv1.GroupKind {
			o.Kind = rbacv1.ServiceAccountKind
			o.Namespace, o.Name, _ = strings.Cut(account, ":")
		}
		if o.Name != "" && !slices.Contains(owners, o) {
			owners = append(owners, o)
		}
	}
	return owners
}

// assignOwners adds the owners to the tenants. A Tenant without a namespace is also a tenant,
// because its owners can create namespaces.
func (d *discovery) assignOwners() {
	for name, owners := range d.owners {
		t := d.tenants[name]
		if t == nil && len(owners) > 0 {
			t = &Tenant{Name: name, Why: []string{"Tenant " + name + " names owners"}}
			d.tenants[name] = t
		}
		if t != nil {
			t.Owners = owners
		}
	}
}

// assignOwnersRights adds the roles of a tenant's owners to the tenant's roles.
func (d *discovery) assignOwnersRights(t *Tenant) {
	shapes := make([][]string, len(t.Owners))
	for _, g := range d.grants {
		for i, o := range t.Owners {
			if !slices.ContainsFunc(g.subjects, o.subject) {
				continue
			}
			place := g.namespace
			if slices.Contains(t.Namespaces, place) {
				place = "its own"
			}
			shapes[i] = append(shapes[i], g.role.Kind+"/"+g.role.Name+" in "+cmp.Or(place, "the cluster"))
			if !slices.ContainsFunc(t.Rights, func(r Right) bool { return r.Binding == g.name }) {
				t.addRight(g, o.String())
			}
		}
	}
	for i := range t.Owners {
		slices.Sort(shapes[i])
		t.Owners[i].Shape = digest(append([]string{t.Owners[i].Kind}, slices.Compact(shapes[i])...))
	}
}

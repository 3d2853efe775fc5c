package discovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Holder is an identity with rights that a tenant can act as and that is not in its Tenant object: a
// service account, or a user or group of people.
type Holder struct {
	// Owner is the identity. Its Shape is equal for holders of one kind with the same rights.
	Owner
	// Platform is set for an account that the platform keeps in the tenant's namespaces for itself: attacks try
	// to act as it, and it is none of the tenant's.
	Platform bool
	// Rights are the bindings that give the holder its roles.
	Rights []Right
	// Policies are the policies and webhooks that look at the names of users and groups, each with its texts that
	// the holder's names contain; sorted. Two holders with the same Policies are the same to admission.
	Policies []string
	// grants are the bindings of Rights, and places their roles, each with the place where it applies; both
	// in the same order.
	grants []grant
	places []string
}

// Within reports whether another holder has all rights of h, in the same namespaces or in namespaces with
// the same labels, bounds and admission.
// Admission must not distinguish the two by their names.
func (h Holder) Within(other Holder) bool {
	return len(h.Beyond(other)) == 0 && slices.Equal(h.Policies, other.Policies)
}

// Beyond returns the rights of h that another holder lacks.
func (h Holder) Beyond(other Holder) []Right {
	var beyond []Right
	for i, place := range h.places {
		if !slices.Contains(other.places, place) {
			beyond = append(beyond, h.Rights[i])
		}
	}
	return beyond
}

// Account returns the account of a holder that is a service account, and otherwise the zero Account.
func (h Holder) Account() Account {
	if h.Kind != rbacv1.ServiceAccountKind {
		return Account{}
	}
	return Account{h.Namespace, h.Name}
}

// assignHolders finds the holders of each tenant: the existing accounts of its namespaces and of its Flux
// objects, the people that the platform bound in its namespaces alone, and callers without credentials.
func (d *discovery) assignHolders() {
	for _, t := range d.tenants {
		for _, a := range d.accounts {
			account := Account{a.Namespace, a.Name}
			if slices.Contains(t.Namespaces, a.Namespace) || slices.Contains(t.Accounts, account) {
				h := Holder{Owner: Owner{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}, Platform: d.accountOfPlatform(a)}
				d.addHolder(t, h, account.subjects())
			}
		}
		everybody := Owner{Kind: rbacv1.UserKind, Name: anonymous}
		d.addHolder(t, Holder{Owner: everybody}, everybody.subjects())
		for _, o := range d.people(t) {
			d.addHolder(t, Holder{Owner: o}, o.subjects())
		}
		// The first account alone needs no shape, because there is no other holder to compare with it.
		places := map[string]string{}
		for i := range t.Holders {
			if len(t.Holders) > 1 || len(t.Accounts) == 0 || t.Holders[i].Account() != t.Accounts[0] {
				d.locate(t, &t.Holders[i], places)
			}
		}
	}
}

// addHolder adds an identity with rights to a tenant's holders, unless it is an owner.
func (d *discovery) addHolder(t *Tenant, h Holder, is []rbacv1.Subject) {
	if slices.ContainsFunc(t.Owners, func(o Owner) bool { return o.User() == h.User() && o.Name == h.Name }) {
		return
	}
	h.grants = d.grantsOf(is)
	for _, g := range h.grants {
		h.Rights = append(h.Rights, rightOf(g, h.String()))
	}
	if len(h.Rights) > 0 {
		t.Holders = append(t.Holders, h)
	}
}

// locate computes the places and the shape of a holder. It keeps the place of each binding in places, since many holders
// may have the same one.
func (d *discovery) locate(t *Tenant, h *Holder, places map[string]string) {
	for _, g := range h.grants {
		place, known := places[g.name]
		if !known {
			place = d.roleShape(g) + " in " + d.placeOf(t, g.namespace)
			places[g.name] = place
		}
		h.places = append(h.places, place)
	}
	h.Policies = d.bounds.distinguish(h.Owner)
	sorted := slices.Clone(h.places)
	slices.Sort(sorted)
	h.Shape = digest(slices.Concat([]string{h.Kind}, slices.Compact(sorted), h.Policies))
}

// placeOf describes the namespace of a binding: a namespace of the tenant by its bounds and not by its name.
func (d *discovery) placeOf(t *Tenant, namespace string) string {
	switch i := slices.IndexFunc(d.namespaces, func(ns corev1.Namespace) bool { return ns.Name == namespace }); {
	case namespace == "":
		return "the cluster"
	case i >= 0 && slices.Contains(t.Namespaces, namespace):
		return "its namespace " + digest(d.bounds.shape(t, d.namespaces[i]))
	}
	return namespace
}

// accountOfPlatform reports whether an account in a tenant's namespaces is the platform's own, which the
// tenant acts as only if a missing control lets it: the platform bound it to cluster-admin, without a
// tenant's label and without another repository that it applies; or only the platform's charts made or name it.
func (d *discovery) accountOfPlatform(a corev1.ServiceAccount) bool {
	if name, _ := tenancy.LabelledTenant(a.Labels); name != "" {
		return false
	}
	account := Account{a.Namespace, a.Name}
	var charts, others int
	for _, u := range slices.Concat(d.kustomizations, d.releases) {
		itsChart := u.GetKind() == string(flux.HelmRelease) && d.appliedByPlatform(&u) && d.fromRoot(u)
		made := flux.AppliedBy(a.Labels) == flux.Ref{Kind: flux.Kind(u.GetKind()), Namespace: u.GetNamespace(), Name: u.GetName()} && !d.madeWithNamespace(a)
		switch uses := nested(u, "spec", "serviceAccountName") == a.Name && u.GetNamespace() == a.Namespace; {
		case uses && u.GetKind() == string(flux.Kustomization) && d.otherRepository(u):
			return false
		case itsChart && (uses || made):
			charts++
		case uses:
			others++
		}
	}
	return d.adminBinding(account) != "" || charts > 0 && others == 0
}

// madeWithNamespace reports whether the object of Flux that applied an account applied its Namespace too, as a chart
// that makes tenants does.
func (d *discovery) madeWithNamespace(a corev1.ServiceAccount) bool {
	return slices.ContainsFunc(d.namespaces, func(ns corev1.Namespace) bool {
		return ns.Name == a.Namespace && flux.AppliedBy(ns.Labels) == flux.AppliedBy(a.Labels)
	})
}

// maxByHand is the maximum number of users and groups of a tenant whose bindings nothing of Flux applied. A tenant may have
// the right to bind hundreds of thousands of invented users, and each of them takes time.
const maxByHand = 1000

// people returns the users and groups that the platform bound in namespaces of the tenant and in no
// other namespace. Those who also work elsewhere, or have cluster-admin, are the platform's people.
// Kubernetes' own users and groups belong to no tenant. Of those whose bindings Flux did not apply, it returns the first maxByHand.
func (d *discovery) people(t *Tenant) []Owner {
	var found []Owner
	byHand := 0
	known, elsewhere := map[Owner]bool{}, map[Owner]bool{}
	for _, g := range d.grants {
		for _, s := range g.subjects {
			o := Owner{Kind: s.Kind, Name: s.Name}
			if s.Kind == rbacv1.ServiceAccountKind || strings.HasPrefix(s.Name, "system:") {
				continue
			}
			switch within := slices.Contains(t.Namespaces, g.namespace); {
			case g.namespace != "" && !within, g.namespace == "" && g.role.Kind+"/"+g.role.Name == clusterAdmin:
				elsewhere[o] = true
			case within && !known[o] && !d.appliedByTenant(g):
				if g.applied == (flux.Ref{}) {
					if byHand++; byHand > maxByHand {
						continue
					}
				}
				known[o] = true
				found = append(found, o)
			}
		}
	}
	return slices.DeleteFunc(found, func(o Owner) bool { return elsewhere[o] })
}

// addPeople adds to the evidence about the platform's namespaces which users and groups have rights there by a
// RoleBinding, and adds the namespaces in which Flux delivers nothing and such people have rights: they may be a
// team's. People with cluster-admin are the platform's.
func (d *discovery) addPeople() {
	admins := map[rbacv1.Subject]bool{}
	for _, g := range d.grants {
		for _, s := range g.subjects {
			if g.namespace == "" && g.role.Kind+"/"+g.role.Name == clusterAdmin {
				admins[rbacv1.Subject{Kind: s.Kind, Name: s.Name}] = true
			}
		}
	}
	people := map[string][]string{}
	for _, g := range d.grants {
		if g.namespace == "" || d.byNamespace[g.namespace] != nil || d.platform[g.namespace] || slices.Contains(kubernetesNamespaces, g.namespace) {
			continue
		}
		for _, s := range g.subjects {
			if s.Kind == rbacv1.ServiceAccountKind || strings.HasPrefix(s.Name, "system:") || admins[rbacv1.Subject{Kind: s.Kind, Name: s.Name}] {
				continue
			}
			people[g.namespace] = append(people[g.namespace], fmt.Sprintf("%s %s with %s/%s", s.Kind, s.Name, g.role.Kind, g.role.Name))
		}
	}
	for i, p := range d.found {
		if who := people[p.Namespace]; who != nil {
			d.found[i].Why += "; people have rights there: " + strings.Join(who, ", ")
			delete(people, p.Namespace)
		}
	}
	for namespace, who := range people {
		d.found = append(d.found, Platform{namespace, "Flux delivers nothing there, and people have rights: " + strings.Join(who, ", ")})
	}
}

// holdersShape returns lines about the holders with rights that the first account lacks.
func (t *Tenant) holdersShape() []string {
	var first Holder
	if len(t.Accounts) > 0 {
		first = t.Holder(t.Accounts[0].User())
	}
	var lines []string
	for _, h := range t.Holders {
		if !h.Platform && !h.Within(first) {
			lines = append(lines, fmt.Sprintf("holder %s %s", h.Kind, h.Shape))
		}
	}
	return lines
}

// Holder returns the holder with a user name, or a holder without rights.
func (t *Tenant) Holder(user string) Holder {
	if i := slices.IndexFunc(t.Holders, func(h Holder) bool { return h.User() == user }); i >= 0 {
		return t.Holders[i]
	}
	return Holder{}
}

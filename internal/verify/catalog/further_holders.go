package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// prepareHolders adds the identities that the tenant can use beside its account. Of identities with equal
// rights it adds only the first, and it omits identities whose rights the account also has. The answers to
// the attacks decide; this comparison only saves attacks that cannot find more than the attacks of the
// account.
func (e *Scenario) prepareHolders(ctx context.Context) error {
	first := e.Tenant.Holder(e.who.user)
	var shapes []string
	for _, h := range e.Tenant.Holders {
		if h.Platform || h.User() == e.who.user || h.Within(first) || slices.Contains(shapes, h.Shape) {
			continue
		}
		shapes = append(shapes, h.Shape)
		other, err := e.actingAs(h, h.Beyond(first))
		if err != nil {
			return fmt.Errorf("cannot attack as %s of tenant %s: %w", h, e.Tenant.Name, err)
		}
		other.distinguished = !slices.Equal(h.Policies, first.Policies)
		covered, err := e.coversRightsOf(ctx, other)
		if err != nil {
			return fmt.Errorf("cannot read the rights of %s of tenant %s: %w", h, e.Tenant.Name, err)
		}
		if covered && !other.distinguished {
			continue
		}
		other.readLimits(ctx)
		e.holders = append(e.holders, other)
	}
	return nil
}

// actingAs returns the Scenario with the identity of a holder, in a namespace of the tenant in which the
// holder has rights.
func (e *Scenario) actingAs(h discovery.Holder, beyond []discovery.Right) (*Scenario, error) {
	var reasons []string
	for _, r := range beyond {
		reasons = append(reasons, r.Role+" by "+r.Binding)
	}
	if len(beyond) == 0 {
		beyond = h.Rights // A policy distinguishes it.
		reasons = []string{"the rights of " + e.Account.String() + ", and which policies distinguish from it by its name"}
	}
	who := identity{name: h.String() + ", which has " + strings.Join(reasons, " and "), user: h.User(), groups: h.Groups()}
	as, err := asIdentity(e.config, who, e.customs)
	if err != nil {
		return nil, err
	}
	other := *e
	other.As, other.who, other.owners, other.unlike, other.ordinaries = as, who, nil, nil, &ordinaries{}
	other.Namespace, other.further = e.namespaceOf(h), beyond
	other.Tenant.Rights, other.Tenant.Roles = h.Rights, nil
	for _, r := range h.Rights {
		other.Tenant.Roles = append(other.Tenant.Roles, r.Role)
	}
	if h.Kind == rbacv1.ServiceAccountKind {
		other.Account = h.Account()
	} else {
		other.Owner = &h.Owner
	}
	return &other, nil
}

// namespaceOf returns the namespace from which a holder attacks: the first of the tenant's namespaces in
// which a RoleBinding gives the holder rights, beginning with the holder's own namespace and e.Namespace.
// Without such a namespace it returns e.Namespace.
func (e *Scenario) namespaceOf(h discovery.Holder) string {
	for _, namespace := range append([]string{h.Namespace, e.Namespace}, e.Tenant.Namespaces...) {
		bound := slices.ContainsFunc(h.Rights, func(r discovery.Right) bool { return r.Namespace == namespace })
		if bound && slices.Contains(e.Tenant.Namespaces, namespace) {
			return namespace
		}
	}
	return e.Namespace
}

// coversRightsOf reports whether the account has all rights of a holder that attacks from the same
// namespace. It compares the rights in this namespace and in the victim's namespace, which stand for rights
// in the whole cluster. It returns false if the holder has rights in namespaces of others.
func (e *Scenario) coversRightsOf(ctx context.Context, other *Scenario) (bool, error) {
	elsewhere := func(r discovery.Right) bool {
		return r.Namespace != "" && !slices.Contains(e.Tenant.Namespaces, r.Namespace)
	}
	if other.Namespace != e.Namespace || slices.ContainsFunc(other.further, elsewhere) {
		return false, nil
	}
	for _, namespace := range []string{e.Namespace, e.Victim.Namespace} {
		had, err := e.rulesIn(ctx, namespace)
		if err != nil {
			return false, err
		}
		has, err := other.rulesIn(ctx, namespace)
		if err != nil {
			return false, err
		}
		if !coversRules(had, has) {
			return false, nil
		}
	}
	return true, nil
}

// rulesIn returns the rules of the identity in a namespace, from the API server.
func (e *Scenario) rulesIn(ctx context.Context, namespace string) (authorizationv1.SubjectRulesReviewStatus, error) {
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	err := e.As.Create(ctx, review)
	return review.Status, err
}

// coversRules reports whether each rule in has is a part of a rule in had.
func coversRules(had, has authorizationv1.SubjectRulesReviewStatus) bool {
	for _, rule := range has.ResourceRules {
		if !slices.ContainsFunc(had.ResourceRules, func(wide authorizationv1.ResourceRule) bool {
			return within(rule.Verbs, wide.Verbs) && within(rule.APIGroups, wide.APIGroups) && within(rule.Resources, wide.Resources) &&
				(len(wide.ResourceNames) == 0 || len(rule.ResourceNames) > 0 && within(rule.ResourceNames, wide.ResourceNames))
		}) {
			return false
		}
	}
	for _, rule := range has.NonResourceRules {
		if !slices.ContainsFunc(had.NonResourceRules, func(wide authorizationv1.NonResourceRule) bool {
			return within(rule.Verbs, wide.Verbs) && within(rule.NonResourceURLs, wide.NonResourceURLs)
		}) {
			return false
		}
	}
	return true
}

// within reports whether the list narrow of a rule allows no more than the list wide.
func within(narrow, wide []string) bool {
	return slices.Contains(wide, "*") || !slices.ContainsFunc(narrow, func(s string) bool { return !slices.Contains(wide, s) })
}

// delayed returns the scenarios that try an attack as an owner or a further identity although the attack waits for
// Flux, with the repository of the account: if RBAC alone refused it to the account, it depends on the rights of the
// others. The same holds if a policy refused it, and policies distinguish the identity. The holder may lack a right
// that the attack needs, so only a finding that got through counts.
func (e *Scenario) delayed(a Attack, findings []Finding) []*Scenario {
	if !a.Deep || a.Via != API || len(findings) == 0 || findings[0].Outcome != Stopped {
		return nil
	}
	byRBAC, byPolicy := slices.Contains([]string{rbac, rbac + ownToo}, findings[0].Control), isPolicy(findings[0].Control)
	var all []*Scenario
	for _, other := range slices.Concat(e.owners, e.holders) {
		depends := byRBAC || byPolicy && other.distinguished
		if !depends || other.Namespace != e.Namespace || a.Owners != OwnersNever && slices.Contains(e.owners, other) {
			continue
		}
		d := *other
		d.Repository, d.slim, d.near, d.charts, d.deliverIn, d.unplanted = e.Repository, e.slim, e.near, e.charts, e.deliverIn, e.unplanted
		all = append(all, &d)
	}
	return all
}

// byHolders returns the scenarios of the further identities that try the attack: all if owners also try it,
// since it then depends on rights alone, and for a list of other attacks. These send requests for objects
// in the holder's namespace or for cluster-scoped objects, and do not wait for Flux.
func (a Attack) byHolders(holders []*Scenario) []*Scenario {
	also := []string{"A1", "A3", "I5", "I10", "I13", "I19", "N3", "N4", "N5", "S3", "S4", "S9", "S13"}
	if a.Via != API || a.Deep || a.Owners == OwnersNever && !slices.Contains(also, a.ID) {
		return nil
	}
	return holders
}

package capsule

import (
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// LabelPromote is the label of a service account in a tenant's namespace that, with the value true, makes
// the account an owner of the tenant. An admission policy of config/capsule limits who may set it.
const LabelPromote = "owner.projectcapsule.dev/promote"

// Promotes reports whether owners of a Tenant may make service accounts owners with [LabelPromote].
func Promotes(c *v1beta2.CapsuleConfiguration, tenant *v1beta2.Tenant) bool {
	p := tenant.Spec.Permissions
	return c != nil && c.Spec.AllowServiceAccountPromotion && (p == nil || p.AllowOwnerPromotion == nil || *p.AllowOwnerPromotion)
}

// promotions adds the promoted service accounts to the owners. An account that the Tenant also names has
// only the roles that the Tenant gives it.
func (t *translation) promotions(c *v1beta2.CapsuleConfiguration, accounts []Account) {
	if !Promotes(c, t.tenant) {
		return
	}
	roles := c.Spec.RBAC.PromotionClusterRoles
	if roles == nil {
		roles = []string{RoleProvisioner, RoleDeleter}
	}
	for _, a := range accounts {
		added := v1alpha1.Owner{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}
		if slices.ContainsFunc(t.spec.Owners, func(have v1alpha1.Owner) bool { return SameOwner(have, added) }) {
			continue
		}
		added.Roles = t.roleList(roles, configurationKind+"spec.rbac.promotionClusterRoles")
		t.spec.Owners = append(t.spec.Owners, added)
	}
	if n := len(t.spec.Owners); n > maxOwners {
		t.note(Refused, "spec.permissions.allowOwnerPromotion", "with the promoted service accounts there are %d owners, and at most %d can be kept", n, maxOwners)
	}
}

// Account is a service account.
type Account struct {
	Namespace, Name string
	// Labels are the labels of the account, and NamespaceLabels those of its namespace.
	Labels, NamespaceLabels map[string]string
}

// LabelEntitle is the label of a service account in a tenant's namespace that, with the value true, gives
// the account the roles of the promotions in spec.rules.
const LabelEntitle = "projectcapsule.dev/promote"

// Entitlement is a role that a rule gives a promoted service account.
type Entitlement struct {
	Account Account
	Role    string
	// Selector selects the namespaces in which the account has the role; nil selects all.
	Selector *metav1.LabelSelector
}

// Targets returns the names of the namespaces in which the account has the role, sorted.
func (e Entitlement) Targets(namespaces []corev1.Namespace) []string {
	var names []string
	for i := range namespaces {
		if ns := &namespaces[i]; ns.DeletionTimestamp.IsZero() && selects(e.Selector, ns.Labels) {
			names = append(names, ns.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Entitlements returns the roles that the promotions in the rules of a Tenant give its promoted service
// accounts. As with Capsule, a rule that selects namespaces applies to the accounts in these namespaces.
func Entitlements(tenant *v1beta2.Tenant, c *v1beta2.CapsuleConfiguration, accounts []Account) []Entitlement {
	if c == nil || !c.Spec.AllowServiceAccountPromotion {
		return nil
	}
	var all []Entitlement
	for i := range tenant.Spec.Rules {
		rule, err := decodeRule(tenant.Spec.Rules[i].Raw)
		if err != nil {
			continue // [translation.rule] reports the error.
		}
		for _, p := range rule.Permissions.Promotions {
			for _, a := range accounts {
				if !selects(rule.NamespaceSelector, a.NamespaceLabels) || !selects(p.Selector, a.Labels) {
					continue
				}
				for _, role := range p.ClusterRoles {
					all = append(all, Entitlement{Account: a, Role: Role(role), Selector: rule.NamespaceSelector})
				}
			}
		}
	}
	return all
}

// selects reports whether a selector matches labels. A nil selector matches all labels, and an invalid
// selector none.
func selects(selector *metav1.LabelSelector, have map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(have))
}

// checkPromotions checks the roles and selectors of the promotions of a rule.
func (t *translation) checkPromotions(field string, all []rulePromotion) {
	for i, p := range all {
		at := fmt.Sprintf("%s[%d]", field, i)
		if _, err := metav1.LabelSelectorAsSelector(p.Selector); err != nil {
			t.note(Refused, at+".selector", "it is no selector: %v", err)
		}
		for j, role := range p.ClusterRoles {
			t.role(role, fmt.Sprintf("%s.clusterRoles[%d]", at, j))
		}
	}
}

// entitlements adds a role binding for each role and selector of promotions.
func (t *translation) entitlements(c *v1beta2.CapsuleConfiguration, accounts []Account) {
	at := map[string]int{}
	for _, e := range Entitlements(t.tenant, c, accounts) {
		key := e.Role + " " + metav1.FormatLabelSelector(e.Selector)
		i, ok := at[key]
		if !ok {
			i = len(t.spec.RoleBindings)
			at[key] = i
			t.spec.RoleBindings = append(t.spec.RoleBindings, v1alpha1.TenantRoleBinding{Role: e.Role, NamespaceSelector: e.Selector})
		}
		b := &t.spec.RoleBindings[i]
		b.Subjects = append(b.Subjects, v1alpha1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: e.Account.Namespace, Name: e.Account.Name})
		if len(b.Subjects) == maxSubjects+1 {
			t.note(Refused, "spec.rules", "more than %d service accounts are promoted to %s", maxSubjects, e.Role)
		}
	}
	if n := len(t.spec.RoleBindings); len(at) > 0 && n > maxBindings {
		t.note(Refused, "spec.rules", "with the promotions there are %d role bindings, and at most %d can be kept", n, maxBindings)
	}
}

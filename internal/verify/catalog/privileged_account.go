package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addPrivilegedAccount(register func(...Attack)) {
	register(Attack{
		ID: "I2", Via: API,
		Kinds:      slices.Concat(everyPod, []string{"Kustomization", "ServiceAccount/token"}),
		Title:      "acts as a privileged service account in its namespace: by Flux, a Pod or a token",
		Controls:   []string{"no privileged account in the tenant's namespaces", "RBAC", "policies on the accounts of Flux objects and Pods"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix:        Fix{Advice: "keep accounts with rights outside of the tenant's namespaces out of these: a policy on Flux objects does not keep the tenant from running Pods as such an account"},
		Run:        namesPrivilegedAccount,
	})
}

func namesPrivilegedAccount(ctx context.Context, e *Scenario) Finding {
	privileged, err := e.privilegedAccounts(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	if len(privileged) == 0 {
		if err := identityWorks(ctx, e); err != nil {
			return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
		}
		return stopped(noPrivileged,
			"no other account of "+strings.Join(e.Tenant.Namespaces, ", ")+" is bound to rights elsewhere")
	}
	var all []request
	for _, p := range privileged {
		all = append(all, actsAs(p)...)
		all = append(all, request{
			what: fmt.Sprintf("have Flux act as %s, which %s", p.account, p.because),
			aimed: creating(func(e *Scenario) *unstructured.Unstructured {
				u := e.suspended("i2", asAnother(p.account.Name))
				u.SetNamespace(p.account.Namespace)
				return u
			}),
			own: creating(func(e *Scenario) *unstructured.Unstructured { return e.suspended("i2", nil) }),
		})
	}
	return requests(all...)(ctx, e)
}

// actsAs returns the requests with which the tenant would act as a privileged account without Flux: with a
// Pod, and with a token of this account.
func actsAs(p privilegedAccount) []request {
	as := fmt.Sprintf("%s, which %s", p.account, p.because)
	running := func(e *Scenario) *unstructured.Unstructured {
		u := pod(harmlessPod(p.account.Name), harmlessContainer())(e)
		u.SetNamespace(p.account.Namespace)
		u.SetName(name("i2"))
		return u
	}
	all := []request{
		{what: "run a Pod as " + as, aimed: creating(running)},
		{what: "make a token of " + as, aimed: holdsNone(p.account.Namespace, right{
			what: "act as " + as, verbs: []string{"create"}, resources: []string{"serviceaccounts/token"}, counts: func(name string) bool { return name == p.account.Name },
		})},
		{what: "impersonate " + as, aimed: holdsNone(p.account.Namespace, right{
			what: "act as " + as, verbs: []string{"impersonate"}, resources: []string{"serviceaccounts"}, counts: func(name string) bool { return name == p.account.Name },
		})},
	}
	for _, w := range workloads {
		all = append(all, request{what: "run a Pod, by a " + w.kind + ", as " + as, aimed: func(ctx context.Context, e *Scenario) error {
			if err := e.tryCreate(ctx, w.of(running(e))); err != nil {
				return err
			}
			return e.creates(ctx, w.controller, running(e))
		}})
	}
	return all
}

// privilegedAccount is an account with rights that its tenant does not have. because names the bindings
// that give them.
type privilegedAccount struct {
	account discovery.Account
	because string
}

// privilegedAccounts returns the accounts in the tenant's namespaces that are bound in the whole cluster or
// in a foreign namespace. It omits the attacking account, because other attacks try its rights.
func (e *Scenario) privilegedAccounts(ctx context.Context) ([]privilegedAccount, error) {
	var accounts corev1.ServiceAccountList
	var everywhere rbacv1.ClusterRoleBindingList
	var bindings rbacv1.RoleBindingList
	if err := e.Admin.List(ctx, &accounts); err != nil {
		return nil, fmt.Errorf("cannot list the accounts: %w", err)
	}
	if err := e.Admin.List(ctx, &everywhere); err != nil {
		return nil, fmt.Errorf("cannot list the bindings of the cluster: %w", err)
	}
	if err := e.Admin.List(ctx, &bindings); err != nil {
		return nil, fmt.Errorf("cannot list the bindings of the namespaces: %w", err)
	}
	return privilegesIn(e.Tenant, e.Account, accounts.Items, everywhere.Items, bindings.Items), nil
}

// hasRightsElsewhere reports whether an account is bound outside of the tenant's namespaces.
func (e *Scenario) hasRightsElsewhere(ctx context.Context, account discovery.Account) (bool, error) {
	var everywhere rbacv1.ClusterRoleBindingList
	var bindings rbacv1.RoleBindingList
	if err := e.Admin.List(ctx, &everywhere); err != nil {
		return false, fmt.Errorf("cannot list the bindings of the cluster: %w", err)
	}
	if err := e.Admin.List(ctx, &bindings); err != nil {
		return false, fmt.Errorf("cannot list the bindings of the namespaces: %w", err)
	}
	return len(privilegesOf(e.Tenant, e.Account, account, everywhere.Items, bindings.Items)) > 0, nil
}

func privilegesIn(t discovery.Tenant, as discovery.Account, accounts []corev1.ServiceAccount, everywhere []rbacv1.ClusterRoleBinding, bindings []rbacv1.RoleBinding) []privilegedAccount {
	var found []privilegedAccount
	for _, a := range accounts {
		account := discovery.Account{Namespace: a.Namespace, Name: a.Name}
		if account == as || !slices.Contains(t.Namespaces, a.Namespace) {
			continue
		}
		because := privilegesOf(t, as, account, everywhere, bindings)
		if len(because) > 0 {
			found = append(found, privilegedAccount{account, strings.Join(because, " and ")})
		}
	}
	return found
}

// privilegesOf returns the bindings that give an account rights outside of the tenant's namespaces, as
// text.
func privilegesOf(t discovery.Tenant, as, account discovery.Account, everywhere []rbacv1.ClusterRoleBinding, bindings []rbacv1.RoleBinding) []string {
	var because []string
	for _, b := range everywhere {
		if bindsPrivileged(b.Subjects, account, as) {
			because = append(because, fmt.Sprintf("has %s/%s in the whole cluster by ClusterRoleBinding %s", b.RoleRef.Kind, b.RoleRef.Name, b.Name))
		}
	}
	for _, b := range bindings {
		if !slices.Contains(t.Namespaces, b.Namespace) && bindsPrivileged(b.Subjects, account, as) {
			because = append(because, fmt.Sprintf("has %s/%s in %s by RoleBinding %s", b.RoleRef.Kind, b.RoleRef.Name, b.Namespace, b.Name))
		}
	}
	return because
}

// bindsPrivileged is [bindsAccount], but also counts a group of the account's namespace, if the attacking
// account is not in this group.
func bindsPrivileged(subjects []rbacv1.Subject, account, as discovery.Account) bool {
	return bindsAccount(subjects, account) || account.Namespace != as.Namespace && slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.GroupKind && s.Name == "system:serviceaccounts:"+account.Namespace
	})
}

// bindsAccount reports whether a binding names an account. A binding to a group of accounts
// does not count.
func bindsAccount(subjects []rbacv1.Subject, account discovery.Account) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			return s.Namespace == account.Namespace && s.Name == account.Name
		case rbacv1.UserKind:
			return s.Name == account.User()
		}
		return false
	})
}

// asAnother returns a change that names the account.
func asAnother(account string) func(spec map[string]any) {
	return func(spec map[string]any) { spec["serviceAccountName"] = account }
}

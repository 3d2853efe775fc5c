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
		Kinds:      []string{"Kustomization"},
		Title:      "lets Flux apply manifests as a privileged service account in its namespace",
		Controls:   []string{"no privileged account in the tenant's namespaces", "policy with a list of reconciler accounts"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix:        Fix{Advice: "keep accounts with rights outside of the tenant's namespaces out of these, and allow only the tenant's reconciler in spec.serviceAccountName with a ValidatingAdmissionPolicy"},
		Layers: []Layer{admissionLayer("policy with a list of reconciler accounts", func(e *Scenario) *unstructured.Unstructured {
			return e.suspended("i2", asAnother("default"))
		})},
		Run: namesPrivilegedAccount,
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

// privilegedAccount says why an account has rights that its tenant has not.
type privilegedAccount struct {
	account discovery.Account
	because string
}

// privilegedAccounts returns the accounts in the tenant's namespaces that are bound in the
// whole cluster or in a foreign namespace, without the attacking account, whose rights other
// attacks try.
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

func privilegesIn(t discovery.Tenant, as discovery.Account, accounts []corev1.ServiceAccount, everywhere []rbacv1.ClusterRoleBinding, bindings []rbacv1.RoleBinding) []privilegedAccount {
	var found []privilegedAccount
	for _, a := range accounts {
		account := discovery.Account{Namespace: a.Namespace, Name: a.Name}
		if account == as || !slices.Contains(t.Namespaces, a.Namespace) {
			continue
		}
		var because []string
		for _, b := range everywhere {
			if bindsAccount(b.Subjects, account) {
				because = append(because, fmt.Sprintf("has %s/%s in the whole cluster by ClusterRoleBinding %s", b.RoleRef.Kind, b.RoleRef.Name, b.Name))
			}
		}
		for _, b := range bindings {
			if !slices.Contains(t.Namespaces, b.Namespace) && bindsAccount(b.Subjects, account) {
				because = append(because, fmt.Sprintf("has %s/%s in %s by RoleBinding %s", b.RoleRef.Kind, b.RoleRef.Name, b.Namespace, b.Name))
			}
		}
		if len(because) > 0 {
			found = append(found, privilegedAccount{account, strings.Join(because, " and ")})
		}
	}
	return found
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

// asAnother names the account.
func asAnother(account string) func(spec map[string]any) {
	return func(spec map[string]any) { spec["serviceAccountName"] = account }
}

